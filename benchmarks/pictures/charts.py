"""Charts of recorded figures: tandem against PyTorch, and scaling."""
import glob
import json
import os
import re

from draw import GRADIENTS, GRID, NOTE, PYTORCH, TANDEM, TEXT, Picture

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
STEP = "step of net, batch 64, 1 thread, fp32"
# Name, conditions, row of docs/benchmarks.
BARS = [("Step of net", "batch 64, one thread", STEP),
        ("Step of net, PyTorch 2.15", "batch 64, one thread", STEP + ", newest PyTorch"),
        ("Epoch of net", "two ranks, 19,200 images",
         "epoch of net, 2 ranks, data included, fp32"),
        ("Epoch of convnet", "two ranks, 12,800 images",
         "epoch of convnet, 2 ranks, data included, fp32"),
        ("Start", "process start to first step", "process start to first step, gzip IDX on disk"),
        ("Memory", "per rank, two ranks", "memory per rank (PSS, 2 ranks)")]


def record(what):
    """The newest row of docs/benchmarks with this name, and its machine."""
    found = []
    for path in glob.glob(os.path.join(ROOT, "docs", "benchmarks", "*.jsonl")):
        with open(path, encoding="utf-8") as file:
            entries = [json.loads(line) for line in file]
        for row in entries:
            if row["kind"] == "row" and row["what"] == what and "above" in row:
                found += [(entry["date"], row, entry) for entry in entries
                          if entry["kind"] == "machine" and row["line"] in entry["lines"]]
    if not found:
        raise RuntimeError(f"docs/benchmarks has no row '{what}'; scripts/bench measures it")
    return max(found, key=lambda part: part[0])[1:]


def instruction_set(machine):
    """The instruction set that a record used, in words."""
    if machine["ONEDNN_MAX_CPU_ISA"] == "AVX2":
        return "AVX2"
    sets = machine["instruction_sets"]
    return "AMX" if "amx" in sets else "AVX-512" if "avx512f" in sets else "AVX2"


def hardware(machine):
    """Instruction set, CPU, cores and date of a record, in words."""
    cpu = re.sub(r"\((R|TM)\)| Processor", "", machine["cpu"])
    torch = re.search(r", (\d+\.\d+)", machine["python, torch"])[1]
    return (f"{instruction_set(machine)}: {cpu}, {machine['usable_cpus']} cores, "
            f"PyTorch {torch} unless named, {machine['date'][:10]}")


def amount(value, unit):
    text = f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
    return f"{text} {unit}"


def bars():
    """PyTorch against tandem: each row has its own scale."""
    left, full, pitch = 230, 330, 58
    picture = Picture(760, 106 + pitch * len(BARS), "PyTorch against tandem on the same "
                      "machine: time of a step and of an epoch, start, memory")
    picture.text(20, 30, "PyTorch against tandem", 16, bold=True)
    x = picture.key(290, 30, PYTORCH, "PyTorch", "bar")
    x = picture.key(x, 30, TANDEM, "tandem", "bar")
    picture.text(740, 30, "fp32 on CPUs; shorter is better", 12, NOTE, "end")
    machines = []
    for place, (name, note, what) in enumerate(BARS):
        row, machine = record(what)
        top = 48 + pitch * place
        picture.text(20, top + 18, name, 13, bold=True)
        picture.text(20, top + 36, f"{note}, {instruction_set(machine)}", 11, NOTE)
        above, below = row["above"]["median"], row["below"]["median"]
        for i, (value, color) in enumerate(((above, PYTORCH), (below, TANDEM))):
            width = full * value / max(above, below)
            picture.box(left, top + 4 + 20 * i, width, 16, color, color, 2)
            picture.text(left + width + 8, top + 17 + 20 * i, amount(value, row["unit"]), 12)
        picture.text(740, top + 28, f"{row['ratio']['median']:.1f}x", 18, TANDEM, "end", True)
        machines.append(hardware(machine))
    for i, words in enumerate(dict.fromkeys(machines)):
        picture.text(20, picture.height - 30 + 16 * i, words, 11, NOTE)
    return picture.svg()


def points(row):
    """Ranks, and images per second of net with batches of 64: measured and predicted."""
    ranks = 2 if "hosts" in row else int(row.split()[3])
    found, machine = record(row)
    return (*(ranks * 64000 / found[side]["median"] for side in ("below", "above")),
            abs(found["ratio"]["median"] - 1), machine)


def scaling():
    """Rates of ranks on one host and of two hosts, and the predictions of tandem plan."""
    left, right, bottom, height, top_rate = 70, 740, 300, 220, 5000
    picture = Picture(760, 400, "Images per second of ranks on one host and on two hosts: "
                                "measured, and predicted by tandem plan")

    def y(rate):
        return bottom - height * rate / top_rate
    picture.text(20, 30, "Images per second", 16, bold=True)
    x = picture.key(300, 30, TANDEM, "measured", "dot")
    picture.path([(x, 26), (x + 24, 26)], GRADIENTS, 2, dash=True)
    picture.dot(x + 12, 26, GRADIENTS, 6, hollow=True)
    picture.text(x + 32, 30, "predicted by tandem plan", 12, NOTE)
    for rate in range(0, top_rate + 1, 1000):
        picture.path([(left, y(rate)), (right, y(rate))], GRID, 1)
        picture.text(left - 8, y(rate) + 4, f"{rate:,}", 11, NOTE, "end")
    columns = [(left + 10 + 62 * ranks, str(ranks), f"plan / measured, {ranks} ranks on this host")
               for ranks in (1, 2, 4)]
    for group, link in enumerate(("1 Gbit/s", "100 Mbit/s")):
        columns += [(416 + 172 * group + 56 * place, way.split()[0],
                     f"plan / measured, 2 hosts, {link}, {way}")
                    for place, way in enumerate(("overlap", "flat", "bf16 hook"))]
        picture.text(416 + 172 * group + 56, bottom + 36, link, 11, NOTE, "middle")
    found = [points(row) for _, _, row in columns]
    picture.path([(column[0], y(point[1])) for column, point in zip(columns[:3], found)],
                 GRADIENTS, 2, dash=True)
    for (x, name, _), (measured, predicted, _, _) in zip(columns, found):
        picture.dot(x, y(predicted), GRADIENTS, 6, hollow=True)
        picture.dot(x, y(measured), TANDEM, 4)
        # The line of predictions rises above the first point.
        label = y(measured) + 22 if name == "1" else y(max(measured, predicted)) - 12
        picture.text(x, label, f"{measured:,.0f}", 11, TEXT, "middle")
        picture.text(x, bottom + 18, name, 11, TEXT, "middle")
    picture.path([(374, bottom - height), (374, bottom + 60)], GRID, 1)
    picture.text(220, bottom + 56, "ranks on one host with two cores", 12, TEXT, "middle")
    picture.text(558, bottom + 56, "two hosts with one rank each", 12, TEXT, "middle")
    worst = max(error for _, _, error, _ in found)
    isa, cpu = hardware(found[0][3]).split(",")[0].split(": ")
    picture.text(20, 384, f"net, batch 64 per rank, fp32; {cpu} ({isa}), {found[0][3]['date'][:10]}; "
                 f"predictions within {100 * worst:.0f} % of measurements", 11, NOTE)
    return picture.svg()
