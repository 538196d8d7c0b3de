"""The lines of the report. Each function measures one and returns its rows."""
import json
import os
import shutil
import shlex
import tempfile

import two_hosts
from measure import ratios, run, run_json, run_pairs, summary, wall_ms

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers")
PYTHON = "/usr/bin/python3"
# The gradients of net, in float32.
NET_BYTES = 4_799_528


class Settings:
    """What the command line of scripts/bench asks for."""

    def __init__(self, program, data, pairs, quick):
        self.program = program
        self.data = data
        self.pairs = pairs
        self.quick = quick

    def size(self, full, quick):
        return quick if self.quick else full


def peer(name, *arguments):
    return [PYTHON, os.path.relpath(os.path.join(PEERS, name)), *arguments]


def row(what, unit, ours, commands=(), against=None, ratio=None, goal=None):
    """A row of the table. `against`: (name, values) of the other side; `ratio`:
    (name, values). `goal`: (sign, number), for the ratio or, without one, for ours."""
    return {"what": what, "unit": unit, "ours": summary(ours),
            "against": against and {"name": against[0], **summary(against[1])},
            "ratio": ratio and {"name": ratio[0], **summary(ratio[1])},
            "goal": goal, "commands": [shlex.join(command) for command in commands]}


def step(settings, log):
    """Training steps of net, one rank, one thread."""
    num = ["--steps", str(settings.size(40, 8)), "--warmup", str(settings.size(8, 3))]
    ours = [settings.program, "bench", "step", "--model", "net", "--data", settings.data,
            "--executor", "eager", "--precision", "fp32", "--threads", "1",
            "--prefetched", *num, "--json"]
    theirs = peer("step.py", "--data", settings.data, "--threads", "1", *num)
    values = run_pairs(log, "step", settings.pairs, "ms_per_step", {
        "ours": lambda: run_json(ours), "PyTorch": lambda: run_json(theirs)})
    a, b = values["ours"], values["PyTorch"]
    what = "step of net, eager, fp32, batch 64, 1 thread"
    return [row(what, "ms", a, (ours, theirs), ("PyTorch", b),
                ("PyTorch / ours", ratios(b, a))),
            row(what, "ms", a, (), ("PyTorch", b), ("ours / PyTorch", ratios(a, b)),
                ("<=", 1.05))]


def train(command, out):
    # A run refuses to mix with the checkpoints of another.
    shutil.rmtree(out, ignore_errors=True)
    run([*command, "--out", out])
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        return json.load(file)


def ddp(settings, log):
    """Two ranks on this machine, loader and gradient sums included."""
    limit = str(settings.size(12800, 2560))
    ours = [settings.program, "train", "--nproc", "2", "--model", "net", "--data",
            settings.data, "--limit", limit]
    theirs = peer("ddp.py", "--data", settings.data, "--nproc", "2", "--limit", limit)
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        values = run_pairs(log, "ddp", min(settings.pairs, 5), "samples_per_second", {
            "ours": lambda: train(ours, folder), "PyTorch": lambda: run_json(theirs)})
    a, b = values["ours"], values["PyTorch"]
    return [row("2 ranks of net on one machine, training only", "samples/s", a,
                (ours, theirs), ("DDP, Gloo", b), ("ours / PyTorch", ratios(a, b)),
                (">=", 1.0))]


def loader(settings, log):
    """Shuffled, normalised batches of 64, one thread, no training."""
    ours = [settings.program, "bench", "loader", "--data", settings.data, "--json"]
    theirs = peer("loader.py", "--data", settings.data, "--epochs", "1",
                  "--limit", str(settings.size(20000, 5000)))
    values = run_pairs(log, "loader", min(settings.pairs, 3), "samples_per_second", {
        "ours": lambda: run_json(ours), "PyTorch": lambda: run_json(theirs)})
    a, b = values["ours"], values["PyTorch"]
    return [row("loader alone, 1 thread", "samples/s", a, (ours, theirs), goal=(">=", 1e6)),
            row("loader alone, 1 thread", "samples/s", a, (), ("torchvision", b),
                ("ours / PyTorch", ratios(a, b)))]


def startup(settings, log):
    """Wall time from starting the program to its end."""
    rows = []
    for arguments in (["--help"], ["launch", "true"]):
        command = [settings.program, *arguments]
        values = wall_ms(command, settings.size(21, 5))
        log.add(kind="runs", line="startup", command=command, values=values)
        rows.append(row("tandem " + shlex.join(arguments), "ms", values, (command,)))
    return rows


def overlap(settings, log):
    """All-reduce while backward goes on, against one all-reduce after it."""
    steps = settings.size(80, 30)
    with two_hosts.TwoHosts() as hosts:
        wire = two_hosts.all_reduce_ms(hosts, settings.program, NET_BYTES)
        log.add(kind="run", line="overlap", side="all-reduce", ms=wire)

        def side(sync):
            return lambda: two_hosts.time_training(
                hosts, settings.program, settings.data, sync, steps)

        pairs = settings.pairs if settings.quick else max(5, min(settings.pairs, 7))
        values = run_pairs(log, "overlap", pairs, "ms_per_step",
                           {sync: side(sync) for sync in ("overlap", "flat")})
        command = hosts.rank_command(0, two_hosts.train_command(
            settings.program, settings.data, "overlap", steps, "OUT"))
    a, b = values["overlap"], values["flat"]
    return [row("all-reduce of net's gradients, 2 hosts, 1 Gbit/s", "ms", [wire]),
            row("net, --sync overlap, 2 hosts, 1 Gbit/s", "ms per step", a, (command,),
                ("--sync flat", b), ("overlap / flat", ratios(a, b)), ("<=", 0.85))]


LINES = {"step": step, "ddp": ddp, "loader": loader, "startup": startup,
         "overlap": overlap}
