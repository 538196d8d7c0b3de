"""Memory of a rank over one step for each kind of sharding, from traces."""
import json
import os
import shutil
import subprocess
import tempfile
import time

from draw import GRADIENTS, GRID, NOTE, PARAMETERS, STATE, Picture

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
RECORD = os.path.join(ROOT, "docs", "pictures", "memory.json")
LAYERS, WIDTH, RANKS = 50, 1448, 4
# The first steps allocate memory and learn the order of buckets.
STEP = 8
KINDS = {"none": NOTE, "optimizer": GRADIENTS, "gradients": STATE, "parameters": PARAMETERS}


def make_inputs(folder):
    """Writes a network of linear layers and noise to train it on."""
    import numpy
    import torch
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    torch.jit.script(torch.nn.Sequential(*layers)).save(os.path.join(folder, "stack.pt"))
    noise = numpy.random.default_rng(0)
    for part, size in (("train", 8 * RANKS * (STEP + 2)), ("test", 8)):
        for name in "xy":
            numpy.save(os.path.join(folder, f"{part}_{name}.npy"),
                       noise.standard_normal((size, WIDTH), dtype=numpy.float32))


def memory_of_step(path):
    """The duration of a step in ms and [time in ms, MiB] of its rank's memory."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    step = next(event for event in events
                if event["ph"] == "X" and event["name"] == f"ProfilerStep#{STEP}")
    memory = [[round((event["ts"] - step["ts"]) / 1000, 1), round(event["args"]["MiB"], 1)]
              for event in events
              if event["ph"] == "C" and 0 <= event["ts"] - step["ts"] <= step["dur"]]
    corners = [point for before, point, after in zip(memory, memory[1:], memory[2:])
               if not before[1] == point[1] == after[1]]
    return {"ms": round(step["dur"] / 1000, 1), "memory": [memory[0], *corners, memory[-1]]}


def record(program):
    """Trains with each kind of sharding over Gloo, and writes memory.json."""
    kinds = {}
    with tempfile.TemporaryDirectory(prefix="tandem-memory-") as folder:
        make_inputs(folder)
        for kind in KINDS:
            out = os.path.join(folder, "run")
            subprocess.run(
                [program, "train", "--model", os.path.join(folder, "stack.pt"), "--data", folder,
                 "--loss", "mse", "--optimizer", "adam", "--batch-size", "8", "--nproc",
                 str(RANKS), "--backend", "gloo", "--executor", "eager", "--shard", kind,
                 "--epochs", "1", "--trace", "--out", out],
                check=True, stdout=subprocess.DEVNULL)
            kinds[kind] = memory_of_step(os.path.join(out, "trace", "rank-1.json"))
            shutil.rmtree(out)
    with open(RECORD, "w", encoding="utf-8") as file:
        json.dump({"date": time.strftime("%Y-%m-%d"), "kinds": kinds}, file)
        file.write("\n")


def draw():
    """The picture of memory.json."""
    with open(RECORD, encoding="utf-8") as file:
        made = json.load(file)
    left, right, bottom, height = 70, 620, 330, 260
    most = max(mib for kind in made["kinds"].values() for _, mib in kind["memory"])
    top_mib = 250 * (int(most / 250) + 1)
    picture = Picture(760, 402, "Memory of a rank over one step for each kind of sharding")
    picture.text(20, 30, "Memory of a rank over one step, in MiB", 16, bold=True)

    def y(mib):
        return bottom - height * mib / top_mib
    for mib in range(0, top_mib + 1, 250):
        picture.path([(left, y(mib)), (right, y(mib))], GRID, 1)
        picture.text(left - 8, y(mib) + 4, f"{mib:,}", 11, NOTE, "end")
    for kind, color in KINDS.items():
        step = made["kinds"][kind]
        points = [(left + (right - left) * ms / step["ms"], y(mib)) for ms, mib in step["memory"]]
        picture.path(points, color)
        picture.text(right + 8, points[-1][1] + 4, kind, 12, color)
    picture.text(left, bottom + 18, "start of the step", 11, NOTE)
    picture.text(right, bottom + 18, "end", 11, NOTE, "end")
    parameters = LAYERS * (WIDTH + 1) * WIDTH * 4 / 1e6
    picture.lines(20, 372, [
        f"{LAYERS} linear layers ({parameters:.0f} MB of parameters), Adam, batch 8 per rank, "
        f"{RANKS} ranks over Gloo, {made['date']}.",
        "Private memory of the process: --trace records it; about 80 MiB belong to the program."],
        11)
    return picture.svg()
