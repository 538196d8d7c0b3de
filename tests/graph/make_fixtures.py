#!/usr/bin/env python3
"""Exports the networks of networks.py, and records the losses of PyTorch's training.

usage: make_fixtures.py [--bad] [NAME...]

Writes fixtures/NAME-VERSION.pt2.gz for the installed version of PyTorch (2.6 or later), and
to fixtures/losses.json: the outputs for the first batch, the losses of training on one rank
and on two (SGD, learning rate 0.05, momentum 0.9), and the loss in evaluation mode after
each. --bad writes fixtures/bad instead, the files that tandem
rejects. The fixtures were made with 2.6.0, 2.7.1, 2.8.0, 2.11.0 and 2.15.0, and
fixtures/bad with 2.15.0.
"""
import argparse
import gzip
import io
import json
import os
import re
import sys
import tempfile
import types
import zipfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

FOLDER = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(FOLDER, "fixtures")
VERSION = torch.__version__.split("+")[0]
STEPS = 50


def load(name):
    """Returns a file of this folder as a module. The stack traces in the files contain the
    path that compile() gets here, not a folder of this machine."""
    os.chdir(FOLDER)
    module = types.ModuleType(name)
    sys.modules[name] = module
    with open(name + ".py") as file:
        exec(compile(file.read(), name + ".py", "exec"), module.__dict__)
    return module


networks = load("networks")


def write_gzip(path, data):
    with open(path, "wb") as file:
        # No name and no time: equal data give equal files.
        with gzip.GzipFile("", "wb", 9, file, 0) as packed:
            packed.write(data)


def export(model, *inputs, dynamic=True):
    # Before 2.8, a slice such as x[:, 0] fails with a named dimension.
    old = tuple(map(int, VERSION.split(".")[:2])) < (2, 8)
    batch = torch.export.Dim.DYNAMIC if old else torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in inputs) if dynamic else None
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    torch_parent = os.path.dirname(os.path.dirname(torch.__file__))
    for node in program.graph.nodes:
        if node.meta.get("stack_trace"):
            node.meta["stack_trace"] = node.meta["stack_trace"].replace(
                torch_parent, "/usr/lib/python3/dist-packages")
    return program


def saved(program, name):
    """Returns the bytes of the file. The name of the file is in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name + ".pt2")
        torch.export.save(program, path)
        with open(path, "rb") as file:
            return file.read()


def train(model, name, rank=0, world=1):
    """Returns the losses of the rank: samples rank, rank + world, ... of each batch."""
    network = networks.NETWORKS[name]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        images, labels = networks.samples(network.shape, network.classes, step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[rank::world]), labels[rank::world])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def evaluate(model, name):
    """Returns the loss of the trained weights and buffers in the original module, in
    evaluation mode, on the next batch."""
    network = networks.NETWORKS[name]
    original = networks.make_network(name).eval()
    # Before 2.8, module() has one of the names of a tied weight.
    original.load_state_dict(model.state_dict(), strict=name != "tied")
    images, labels = networks.samples(network.shape, network.classes, STEPS)
    with torch.no_grad():
        return F.cross_entropy(original(images), labels).item()


def train_rank(rank, path, name, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = torch.export.load(path).module()
    # A loaded weight with several names is several parameters with one storage. The graph
    # uses one of them.
    ddp = DistributedDataParallel(model, find_unused_parameters=name == "tied")
    losses = train(ddp, name, rank, 2)
    with open(f"{folder}/{rank}", "w") as file:
        json.dump([losses, evaluate(model, name)], file)


def train_two_ranks(path, name):
    """Returns the mean of the two ranks' losses, and evaluate() of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            train_rank, (path, name, folder), nprocs=2, start_method="spawn")
        (first, evaluation), (second, _) = (
            json.load(open(f"{folder}/{rank}")) for rank in range(2))
    return [(a + b) / 2 for a, b in zip(first, second)], evaluation


def record(name):
    """Returns the first outputs of the file, the losses of training it on one rank and on
    two, and evaluate() after each."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name + ".pt2")
        with gzip.open(f"{FIXTURES}/{name}-{VERSION}.pt2.gz") as file:
            data = file.read()
        with open(path, "wb") as file:
            file.write(data)
        network = networks.NETWORKS[name]
        images, _ = networks.samples(network.shape, network.classes, 0)
        outputs = torch.export.load(path).module()(images).tolist()
        model = torch.export.load(path).module()
        one_rank = train(model, name)
        two_ranks, evaluation = train_two_ranks(path, name)
        return {"outputs": outputs, "one_rank": one_rank, "two_ranks": two_ranks,
                "evaluation": [evaluate(model, name), evaluation]}


def write_losses(name, numbers):
    path = f"{FIXTURES}/losses.json"
    everything = json.load(open(path)) if os.path.exists(path) else {}
    everything.setdefault(name, {})[VERSION] = numbers
    lines = []
    for network in sorted(everything):
        versions = everything[network]
        rows = [f'  "{version}": {{\n' + ",\n".join(
            f'   "{key}": {json.dumps(versions[version][key])}'
            for key in ("outputs", "one_rank", "two_ranks", "evaluation")) + "}"
            for version in sorted(versions, key=lambda v: list(map(int, v.split("."))))]
        lines.append(f' "{network}": {{\n' + ",\n".join(rows) + "}")
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(lines) + "}\n")


def make_net():
    """Exports the network of tutorial 003 with weights of 0: tests initialize them."""
    model = networks.Net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    program = export(model, torch.zeros(2, 1, 28, 28))
    write_gzip(f"{FIXTURES}/net-{VERSION}.pt2.gz", saved(program, "net"))


def make(name):
    if name == "net":
        make_net()
        return
    network = networks.NETWORKS[name]
    program = export(networks.make_network(name),
                     torch.zeros(2, *network.shape, dtype=torch.float64))
    write_gzip(f"{FIXTURES}/{name}-{VERSION}.pt2.gz", saved(program, name))
    write_losses(name, record(name))


def rewritten(data, change):
    """Returns the file with each record's content replaced by change(record, content).
    A record whose new content is None is removed."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(result, "w") as new:
        for entry in old.infolist():
            content = change(entry.filename.split("/", 1)[1], old.read(entry))
            if content is not None:
                new.writestr(entry, content)
    return result.getvalue()


def newer_schema(record, content):
    if record != "models/model.json":
        return content
    changed = re.sub(rb'("schema_version": \{"major": )\d+', rb"\g<1>9", content)
    assert changed != content
    return changed


def compiled_package():
    """Returns a package of AOTInductor. Contents are cut, because the library is large."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "compiled.pt2")
        torch._inductor.aoti_compile_and_package(
            export(torch.nn.Linear(8, 4), torch.zeros(2, 8), dynamic=False),
            package_path=path)
        with open(path, "rb") as file:
            return rewritten(
                file.read(),
                lambda record, content: content[:64] if "model/" in record else content)


def make_bad():
    bad = load("bad_networks")
    torch.manual_seed(1)
    x = torch.zeros(2, 8)
    linear = torch.nn.Linear(8, 4)
    programs = {
        "evaluation": export(bad.Evaluation(), torch.zeros(2, 1, 8, 8)),
        "decomposed": export(bad.Normalised(), x).run_decompositions(),
        "fixed_batch": export(bad.FixedBatch(), x, dynamic=False),
        "two_inputs": export(bad.TwoInputs(), x, x),
        "two_outputs": export(bad.TwoOutputs(), x),
        "control_flow": export(bad.ControlFlow(), x),
        "random": export(bad.Random(), x),
        "custom_operator": export(bad.CustomOperator(), x),
    }
    files = {name + ".pt2": saved(program, name) for name, program in programs.items()}
    files["newer_schema.pt2"] = rewritten(
        saved(export(linear, x), "newer_schema"), newer_schema)
    files["compiled.pt2"] = compiled_package()
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(linear, x), file)
    # Debugging records contain paths of this machine.
    files["torchscript.pt"] = rewritten(
        file.getvalue(),
        lambda record, content: None if record.endswith(".debug_pkl") else content)
    file = io.BytesIO()
    torch.save(linear.state_dict(), file)
    files["state_dict.pt"] = file.getvalue()
    os.makedirs(f"{FIXTURES}/bad", exist_ok=True)
    for name, data in files.items():
        write_gzip(f"{FIXTURES}/bad/{name}.gz", data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bad", action="store_true", help="write fixtures/bad")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all networks")
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    if arguments.bad:
        make_bad()
        return
    for name in arguments.names or [*networks.NETWORKS, "net"]:
        make(name)


if __name__ == "__main__":
    main()
