"""The table of the report: a row per figure, with its two sides and its goals.

A figure is the ratio of `above` and `below`, which are values that the line measures;
without `below` it is `above`. The goals `least` and `strive` are lower limits if `sign`
is ">=", and upper limits if it is "<=". If it is "+-", the figure must be within `least`
of 1. A row without `least` has no goal.
"""
import collections

from models import RECIPES

Row = collections.namedtuple(
    "Row", "line what unit above below sign least strive", defaults=(">=", None, None))

SIZES = {"1 KB": 1024, "64 KB": 65536, "4.8 MB": 4_800_000, "64 MB": 67_108_864}
# Rates of the links for tc, by their name in the report.
LINKS = {"1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}
WAYS = {"overlap": [], "flat": ["--sync", "flat"], "bf16 hook": ["--comm-hook", "bf16"]}
RANKS = (1, 2, 4)
SMALL = [name for name in RECIPES if name != "net"]

GLOO_GOALS = {"64 KB": (6, 15), "4.8 MB": (4, 8)}
STEP = "step of net, batch 64, 1 thread"

ROWS = [
    Row("step", f"{STEP}, fp32", "ms", "PyTorch fp32", "ours fp32", ">=", 3, 3.6),
    Row("step", f"{STEP}, bf16 against fp32", "ms", "PyTorch fp32", "ours bf16", ">=", 6, 9),
    Row("step", f"{STEP}, bf16", "ms", "PyTorch bf16", "ours bf16", ">=", 3.3, 5),
    Row("step", f"{STEP}, eager fp32", "ms", "ours eager", "PyTorch fp32", "<=", 1.05),
    Row("newest", f"{STEP}, fp32, newest PyTorch", "ms", "newest fp32", "ours fp32"),
    Row("newest", f"{STEP}, bf16, newest PyTorch", "ms", "newest bf16", "ours bf16"),
    Row("newest", f"{STEP}, fp32, torch.compile", "ms", "newest compiled fp32", "ours fp32"),
    Row("newest", f"{STEP}, bf16, torch.compile", "ms", "newest compiled bf16", "ours bf16"),
    Row("primitives", "fp32 step without optimizer / bare primitives", "ms", "ours fp32 without optimizer", "primitives fp32", "<=", 1.25, 1.10),
    Row("primitives", "bf16 step without optimizer / bare primitives", "ms", "ours bf16 without optimizer", "primitives bf16"),
    Row("optimizer", "optimizer pass / memcpy of the same bytes, Adadelta", "ms", "adadelta", "adadelta memcpy", "<=", 1.2, 1.0),
    Row("optimizer", "optimizer pass / memcpy of the same bytes, Adam", "ms", "adam", "adam memcpy", "<=", 1.2, 1.0),
    Row("optimizer", "optimizer pass / memcpy of the same bytes, AdamW", "ms", "adamw", "adamw memcpy", "<=", 1.2, 1.0),
    Row("optimizer", "optimizer pass / memcpy of the same bytes, SGD", "ms", "sgd", "sgd memcpy", "<=", 1.2, 1.0),
    Row("epoch", "epoch of net, 2 ranks, data included, fp32", "s", "DDP fp32", "ours fp32", ">=", 3.5, 4.5),
    Row("epoch", "epoch of net, 2 ranks, data included, bf16 against fp32", "s", "DDP fp32", "ours bf16", ">=", 7, 10),
    Row("epoch", "2 ranks against 1, fp32", "samples/s", "ours fp32 samples/s", "1 rank fp32 samples/s", ">=", 1.85, 2.0),
    Row("epoch", "2 ranks against 1, bf16", "samples/s", "ours bf16 samples/s", "1 rank bf16 samples/s", ">=", 1.85, 2.0),
    Row("epoch", "2 ranks against two lone runs at once, fp32", "samples/s", "ours fp32 samples/s", "2 lone runs fp32 samples/s"),
    Row("epoch", "2 ranks against two lone runs at once, bf16", "samples/s", "ours bf16 samples/s", "2 lone runs bf16 samples/s"),
    *(Row("models", f"epoch of {name}, 2 ranks, data included, fp32", "s", f"DDP {name}", f"ours {name}", ">=", 3, 10) for name in SMALL),
    *(Row("allreduce", f"all-reduce, 2 ranks, {size}, Gloo / shm", "ms", f"gloo {size}", f"shm {size}", ">=", *GLOO_GOALS.get(size, ())) for size in SIZES),
    *(Row("allreduce", f"all-reduce, 2 ranks, {size}, Open MPI / shm", "ms", f"Open MPI {size}", f"shm {size}", ">=", 1, 1.5) for size in SIZES),
    *(Row("allreduce", f"all-reduce, 2 ranks, {size}, Open MPI / shm, private memory", "ms", f"Open MPI {size}", f"shm {size} private") for size in SIZES),
    Row("loader", "loader, 1 thread: ours / torchvision", "samples/s", "ours", "torchvision", ">=", 100, 300),
    Row("startup", "process start to first step, gzip IDX on disk", "ms", "PyTorch", "ours", ">=", 1.8, 2.5),
    Row("startup", "tandem --help", "ms", "help", None),
    Row("startup", "tandem launch true", "ms", "launch", None),
    Row("memory", "memory per rank (PSS, 2 ranks)", "MiB", "PyTorch", "ours", ">=", 1.5, 2.5),
    *(Row("links", f"net, 2 hosts, {link}, overlap / flat", "ms per step", f"{link} overlap", f"{link} flat", "<=", 0.85 if link == "1 Gbit/s" else None) for link in LINKS),
    *(Row("links", f"net, 2 hosts, {link}, bf16 hook / overlap", "ms per step", f"{link} bf16 hook", f"{link} overlap", "<=") for link in LINKS),
    *(Row("links", f"net, 2 hosts of 2 ranks, {link}, reduced on each host first / not", "ms per step", f"{link} shm+gloo", f"{link} gloo", "<=") for link in LINKS),
    *(Row("links", f"plan / measured, 2 hosts, {link}, {way}", "ms per step", f"plan {link} {way}", f"{link} {way}", "+-", 0.15) for link in LINKS for way in WAYS),
    *(Row("plan", f"plan / measured, {ranks} ranks on this host", "ms per step", f"plan {ranks}", f"ranks {ranks}", "+-", 0.15) for ranks in RANKS),
]
