#!/usr/bin/env python3
"""PyTorch's side of the parity tests: the same training, files and samples, by
torch.nn, torch.optim, DistributedDataParallel and DistributedSampler.

Needs torch only (no numpy, no safetensors package). One rank has one thread. The argument
`then` separates commands that run one after another, since the import of torch takes most of
the time of a short command.
"""
import argparse
import ctypes
import datetime
import fnmatch
import gzip
import hmac
import json
import os
import socket
import struct
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DistributedSampler

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
          "BF16": torch.bfloat16, "I64": torch.int64}


class Net(nn.Module):
    """The network of tutorial 003 without dropout, for images of any even size."""

    def __init__(self, side=28):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.fc1 = nn.Linear(64 * (side // 2 - 2) ** 2, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


class ConvNetBn(nn.Module):
    """The network of tutorial 004, which has buffers."""

    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.layer2 = nn.Sequential(
            nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(1568, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.layer2(self.layer1(x)), 1))


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(size, size, 3, padding=1, bias=False), nn.BatchNorm2d(size),
            nn.ReLU(),
            nn.Conv2d(size, size, 3, padding=1, bias=False), nn.BatchNorm2d(size))

    def forward(self, x):
        return F.relu(x + self.path(x))


class Residual(nn.Sequential):
    """The network of examples/custom_model."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8),
            nn.ReLU(), Block(8), nn.MaxPool2d(2), Block(8), nn.Flatten(),
            nn.Linear(8 * 7 * 7, 10))


MODELS = {"net": Net, "convnet_bn": ConvNetBn, "residual": Residual}


# --- files ---

def load_safetensors(path):
    """Reads a file, or all files of an index in the layout of Hugging Face."""
    if path.endswith(".index.json"):
        with open(path) as file:
            places = json.load(file)["weight_map"]
        folder = os.path.dirname(path)
        files = {name: load_safetensors(f"{folder}/{name}") for name in set(places.values())}
        return {name: files[file][name] for name, file in places.items()}
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            dtype = DTYPES[entry["dtype"]]
            flat = torch.frombuffer(data[begin:end], dtype=dtype)
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def bytes_of(tensor):
    flat = tensor.detach().contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())


def save_safetensors(tensors, path):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = bytes_of(tensor)
        dtype = next(key for key, value in DTYPES.items() if value == tensor.dtype)
        header[name] = {"dtype": dtype, "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def save_shards(tensors, folder):
    """Writes two files and an index, as save_pretrained() of Hugging Face."""
    os.makedirs(folder, exist_ok=True)
    names = list(tensors)
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        save_safetensors({name: tensors[name] for name in names if places[name] == file},
                         f"{folder}/{file}")
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    with open(f"{folder}/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {"total_size": size}, "weight_map": places}, file)


def load_weights(path):
    if path.endswith((".safetensors", ".index.json")):
        return load_safetensors(path)
    return torch.load(path, weights_only=True)


def read_idx(folder, name, dims):
    for path in (f"{folder}/{name}", f"{folder}/{name}.gz"):
        if os.path.exists(path):
            with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
                raw = file.read()
            shape = struct.unpack(f">{dims}I", raw[4:4 + 4 * dims])
            flat = torch.frombuffer(bytearray(raw[4 + 4 * dims:]), dtype=torch.uint8)
            return flat.reshape(shape)
    sys.exit(f"no {name} in {folder}")


def read_images(folder, part):
    """Images after ToTensor() and Normalize((0.1307,), (0.3081,)), in float32."""
    pixels = read_idx(folder, f"{part}-images-idx3-ubyte", 3)
    images = pixels.unsqueeze(1).to(torch.float32).div(255)
    mean = torch.as_tensor((0.1307,), dtype=torch.float32).view(-1, 1, 1)
    std = torch.as_tensor((0.3081,), dtype=torch.float32).view(-1, 1, 1)
    labels = read_idx(folder, f"{part}-labels-idx1-ubyte", 1).to(torch.int64)
    return images.sub_(mean).div_(std), labels


# --- training ---

def make_optimizer(name, parameters, lr):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=5e-4)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
            "adadelta": torch.optim.Adadelta}[name]
    return kind(parameters, lr=lr)


def factor_of(factors, name):
    """The factor of the first pattern that matches, of "PATTERN=FACTOR,..."."""
    for entry in factors.split(","):
        pattern, _, factor = entry.rpartition("=")
        if fnmatch.fnmatchcase(name, pattern):
            return float(factor)
    return 1.0


def fine_tune(args, net):
    """Freezes parameters and makes the optimizer with a group for each of the others."""
    for name, parameter in net.named_parameters():
        frozen = any(fnmatch.fnmatchcase(name, p) for p in args.freeze.split(","))
        parameter.requires_grad_(not frozen)
    trained = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    optimizer = make_optimizer(
        args.optimizer, [{"params": [p]} for _, p in trained], args.lr)
    for (name, _), group in zip(trained, optimizer.param_groups):
        group["lr"] *= factor_of(args.lr_factor, name)
        group["weight_decay"] *= factor_of(args.weight_decay_factor, name)
    return optimizer


# Losses by the names of --loss. The outputs of Net are log-probabilities.
LOSSES = {
    "auto": F.nll_loss,
    "cross_entropy": F.cross_entropy,
    # As tutorial 001: a softmax, then the cross-entropy, which has a softmax itself.
    "softmax_cross_entropy": lambda output, labels, reduction: F.cross_entropy(
        F.softmax(output, dim=1), labels, reduction=reduction),
}


def make_scheduler(args, optimizer, steps_per_epoch):
    """The scheduler, and the steps between two of its calls."""
    schedulers = torch.optim.lr_scheduler
    if args.schedule == "step":
        return schedulers.StepLR(optimizer, step_size=1, gamma=0.7), steps_per_epoch
    warm, steps = args.warmup_steps, args.epochs * steps_per_epoch
    return schedulers.SequentialLR(optimizer, [
        schedulers.LinearLR(optimizer, args.start_factor, total_iters=warm),
        schedulers.CosineAnnealingLR(optimizer, steps - warm, eta_min=args.min_lr),
    ], milestones=[warm]), 1


def options_of_loss(args):
    if args.loss != "cross_entropy":
        return {"reduction": args.reduction}
    return {"reduction": args.reduction, "label_smoothing": args.label_smoothing,
            "ignore_index": args.ignore_index}


def batches_of(args, rank, shards, epoch, size):
    """Indices per step of one process, which has the batches of `shards` ranks."""
    orders = []
    for shard in range(rank, rank + shards):
        sampler = DistributedSampler(
            range(size), num_replicas=args.world, rank=shard, seed=args.seed)
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    step = args.batch_size * args.accumulate
    for first in range(0, len(orders[0]), step):
        yield [i for order in orders for i in order[first:first + step]]


def add_noise(net, seed):
    """Changes the last bits of weights at random, to measure how much PyTorch's own
    results change."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            way = torch.randint(0, 3, weight.shape, generator=generator) - 1
            weight.mul_(1 + torch.finfo(weight.dtype).eps * way)


def train_rank(rank, args, meeting):
    torch.set_num_threads(1)
    together = args.world > 1 and not args.one_process
    if together:
        dist.init_process_group(
            "gloo", init_method="file://" + meeting, rank=rank, world_size=args.world)
    dtype = torch.float64 if args.precision == "fp64" else torch.float32
    images, labels = read_images(args.data, "train")
    images = images[:, :, ::args.stride, ::args.stride]
    net = Net(images.shape[-1]).to(dtype)
    net.load_state_dict(torch.load(args.init))
    if args.noise:
        add_noise(net, args.noise)
    optimizer = fine_tune(args, net)
    model = DistributedDataParallel(net) if together else net
    shards = args.world if args.one_process else 1
    steps_per_epoch = len(list(batches_of(args, rank, shards, 0, len(labels))))
    scheduler, interval = make_scheduler(args, optimizer, steps_per_epoch)
    average = AveragedModel(net, avg_fn=lambda average, value, _: (
        args.ema_decay * average + (1 - args.ema_decay) * value))
    steps = 0
    for epoch in range(args.epochs):
        for batch in batches_of(args, rank, shards, epoch, len(labels)):
            lr = optimizer.param_groups[0]["lr"]
            optimizer.zero_grad()
            output = model(images[batch].to(dtype))
            loss = LOSSES[args.loss](output, labels[batch], **options_of_loss(args))
            loss.backward()
            optimizer.step()
            if args.ema_decay:
                average.update_parameters(net)
            mean = loss.detach() / (len(batch) if args.reduction == "sum" else 1)
            if together:
                dist.all_reduce(mean)
                mean /= args.world
            if rank == 0:
                print(repr(mean.item()), repr(lr), flush=True)
            steps += 1
            if steps % interval == 0:
                scheduler.step()
    if args.ema_decay:
        torch.save(average.module.state_dict(), args.ema_out)


def train(args):
    """Writes the initial weights to --init, trains, prints a loss per step."""
    torch.manual_seed(args.seed)
    side = read_idx(args.data, "train-images-idx3-ubyte", 3).shape[-1] // args.stride
    torch.save(Net(side).state_dict(), args.init)
    if args.world == 1 or args.one_process:
        train_rank(0, args, "")
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        # Forked, so torch is imported once; no thread has been used before.
        torch.multiprocessing.start_processes(
            train_rank, (args, folder + "/meeting"), nprocs=args.world,
            start_method="fork")


# --- exchange of weights ---

def save(args):
    """Saves a model with new weights in all usual forms."""
    torch.manual_seed(args.seed)
    model = MODELS[args.model]().to(getattr(torch, args.dtype))
    model(torch.randn(8, 1, 28, 28, dtype=getattr(torch, args.dtype)))
    state = model.state_dict()
    optimizer = torch.optim.Adam(model.parameters())
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    state = model.state_dict()
    forms = {
        "state.pt": state,
        "plain.bin": dict(state),
        "replica.pt": {"module." + name: value for name, value in state.items()},
        "parameters.pth": {name: nn.Parameter(value, False) if value.is_floating_point()
                           else value for name, value in state.items()},
        "nested.pt": {"epoch": 3, "best": 0.5, "name": "run", "state_dict": state,
                      "optimizer": optimizer.state_dict(), "args": argparse.Namespace()},
        "trainer.pt": {"model": state, "seeds": [1, 2**40, -2**70], "done": True},
        "tutorial.pt": {"epoch": 3, "model_state_dict": state, "loss": 0.5},
        "snapshot.pt": {"MODEL_STATE": state, "EPOCHS_RUN": 3},
        "lightning.ckpt": {"state_dict": {"model." + name: value
                                          for name, value in state.items()}},
        "compiled.pt": {"_orig_mod." + name: value for name, value in state.items()},
        "strided.pt": {name: strided(value) for name, value in state.items()},
    }
    for name, value in forms.items():
        torch.save(value, f"{args.out}/{name}")
    save_safetensors(state, f"{args.out}/state.safetensors")
    save_shards(state, f"{args.out}/shards")
    # Values that are not in a state dict.
    torch.save(list(state.values()), f"{args.out}/list.pt")
    torch.save(model, f"{args.out}/module.pt")
    torch.save({"epoch": 3, "loss": 0.5}, f"{args.out}/numbers.pt")
    torch.save(state, f"{args.out}/old.pt", _use_new_zipfile_serialization=False)
    torch.jit.script(model).save(f"{args.out}/script.pt")


def strided(tensor):
    """The same values as a view of a storage with another order."""
    wide = torch.zeros(tuple(tensor.shape) + (3,), dtype=tensor.dtype)
    wide[..., 1] = tensor
    return wide.permute(*reversed(range(wide.dim()))).contiguous() \
        .permute(*reversed(range(wide.dim())))[..., 1]


def logits(args):
    """Loads --weights with strict=True; writes the outputs for --inputs."""
    inputs = load_safetensors(args.inputs)["inputs"]
    model = MODELS[args.model]().to(inputs.dtype).eval()
    model.load_state_dict(load_weights(args.weights), strict=True)
    with torch.no_grad():
        save_safetensors({"logits": model(inputs)}, args.out)


def same(args):
    """Checks that two files have equal names, dtypes, shapes and bits; with --tolerance,
    values that differ by at most that number."""
    a, b = load_weights(args.first), load_weights(args.second)
    if args.tolerance > 0:
        largest = max((a[name] - b[name]).abs().max().item() for name in a)
        print(f"largest difference: {largest:.2g}")
        sys.exit(sorted(a) != sorted(b) or not largest <= args.tolerance)
    wrong = [name for name in a if name in b and (
        a[name].dtype != b[name].dtype or a[name].shape != b[name].shape
        or bytes_of(a[name]) != bytes_of(b[name]))]
    if sorted(a) != sorted(b) or wrong:
        sys.exit(f"differ: {list(a)} {list(b)} {wrong}")
    print(len(a), "tensors are the same")


def evaluate(args):
    """Prints the mean test loss and the numbers of correct and of all samples."""
    images, labels = read_images(args.data, "t10k")
    model = MODELS[args.model]().eval()
    model.load_state_dict(load_weights(args.weights), strict=True)
    with torch.no_grad():
        output = model(images)
    loss = (F.nll_loss if args.model == "net" else F.cross_entropy)(output, labels).item()
    right = int(output.argmax(dim=1).eq(labels).sum())
    print(f"Average loss: {loss:.4f}, Accuracy: {right}/{len(labels)}")


def predict(args):
    """Prints the probabilities of the classes of each test image, one image per line."""
    images, _ = read_images(args.data, "t10k")
    model = MODELS[args.model]().eval()
    model.load_state_dict(load_weights(args.weights), strict=True)
    with torch.no_grad():
        for row in model(images).softmax(dim=1).tolist():
            print(*row)


# --- a group with ranks of tandem and of PyTorch ---

class TandemStore(dist.Store):
    """The protocol of tandem's rendezvous store (tandem/base/store/protocol.h)."""

    SET, GET, WAIT, ADD = 1, 2, 3, 4
    TIMEOUT_MS = 30_000

    def __init__(self, address):
        super().__init__()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(address[len("unix:"):])
        self.shake_hands(token=b"")

    def shake_hands(self, token):
        name, own = b"tandem-store 3 ", os.urandom(32)
        other = self.exchange(name + own)
        proof = {side: hmac.digest(token, name + side + b" " + own + other, "sha256")
                 for side in (b"client", b"server")}
        if self.exchange(proof[b"client"]) != proof[b"server"]:
            raise RuntimeError("the store does not know the token")

    def exchange(self, frame):
        self.socket.sendall(struct.pack("<I", len(frame)) + frame)
        reply = self.receive(struct.unpack("<I", self.receive(4))[0])
        if reply[:1] != b"\0":
            raise RuntimeError(f"the store answered {reply!r}")
        return reply[1:]

    def receive(self, size):
        data = b""
        while len(data) < size:
            data += self.socket.recv(size - len(data)) or sys.exit("the store closed")
        return data

    def request(self, operation, *texts):
        frame = struct.pack("<BqI", operation, self.TIMEOUT_MS, len(texts))
        for text in texts:
            raw = text if isinstance(text, bytes) else text.encode()
            frame += struct.pack("<I", len(raw)) + raw
        return self.exchange(frame)

    def set(self, key, value):
        self.request(self.SET, key, value)

    def get(self, key):
        return self.request(self.GET, key)

    def wait(self, keys, timeout=None):
        self.request(self.WAIT, *keys)

    def add(self, key, amount):
        return int(self.request(self.ADD, key, str(amount)))


def join(args):
    """Rank 1 of a group whose rank 0 is tests/comm/mixed_group_test.cpp."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = TandemStore(args.store)
    group = dist.ProcessGroupGloo(
        dist.PrefixStore("mixed", store), 1, 2, datetime.timedelta(seconds=30))
    torch.manual_seed(args.seed)
    model = Net().double()
    optimizer = make_optimizer("sgd", model.parameters(), 0.05)
    inputs = torch.linspace(-1, 2, 4 * 784, dtype=torch.float64).sin() + 1
    labels = torch.tensor([4, 5, 6, 7])
    for _ in range(args.steps):
        optimizer.zero_grad()
        output = model(inputs.view(4, 1, 28, 28))
        (F.nll_loss(output, labels, reduction="sum") / 8).backward()
        for parameter in model.parameters():
            group.allreduce(parameter.grad).wait()
        optimizer.step()
    for parameter in model.parameters():
        group.broadcast(parameter.detach(), 1).wait()


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)

    def command(function, **options):
        sub = commands.add_parser(function.__name__)
        sub.set_defaults(run=function)
        for name, default in options.items():
            if default is False:
                sub.add_argument(f"--{name}".replace("_", "-"), action="store_true")
            else:
                sub.add_argument(f"--{name}".replace("_", "-"), default=default,
                                 type=type(default), required=default == "")

    command(train, data="", init="", world=1, one_process=False, optimizer="sgd",
            lr=0.1, batch_size=8, epochs=1, seed=0, precision="fp64", reduction="mean",
            loss="auto", noise=0, stride=1, freeze=",", lr_factor=",",
            weight_decay_factor=",", accumulate=1, schedule="step", gamma=0.7,
            step_size=1, warmup_steps=0, start_factor=0.1, min_lr=0.0,
            label_smoothing=0.0, ignore_index=-100, ema_decay=0.0, ema_out="none")
    command(save, model="net", dtype="float32", seed=1, out="")
    command(logits, model="net", weights="", inputs="", out="")
    command(same, first="", second="", tolerance=0.0)
    command(join, store="", seed=1, steps=3)
    command(evaluate, model="net", data="", weights="")
    command(predict, model="net", data="", weights="")
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    while arguments:
        end = arguments.index("then") if "then" in arguments else len(arguments)
        args = parser.parse_args(arguments[:end])
        args.run(args)
        arguments = arguments[end + 1:]


if __name__ == "__main__":
    main()
