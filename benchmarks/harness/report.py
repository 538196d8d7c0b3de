"""Facts about the machine, and the page of a report."""
import json
import os
import re
import subprocess
import time

from measure import Failed, ratios, run_json, summary
from table import ROWS


def cpu_field(name):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(name):
                return line.split(":", 1)[1].strip()
    return ""


def output_of(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def torch_versions(python):
    found = output_of(python, "-c", (
        "import torch, sys;"
        "print(sys.version.split()[0], torch.__version__, *[l.strip(' -') for l in"
        " torch.__config__.show().splitlines() if 'capability' in l][:1], sep=', ')"))
    return found or "none"


def machine(settings):
    """The facts about machine and software that the numbers depend on."""
    about = run_json([settings.program, "bench", "step", "--model", "simplenet", "--data",
                      settings.data, "--steps", "1", "--warmup", "0", "--json"])
    facts = {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cpu": about["cpu"], "cpu_model": cpu_field("model\t"),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "instruction_sets": " ".join(about["instruction_sets"]),
        "threads": "1 per rank",
        "ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "not set"),
        "system": " ".join(os.uname()[i] for i in (0, 2)),
        "tandem": output_of(settings.program, "version"),
        "commit": output_of("git", "rev-parse", "--short", "HEAD") +
                  (" with changes" if output_of(
                      "git", "--no-optional-locks", "status", "--porcelain") else ""),
        "libtorch": about["libtorch"],
        "onednn": onednn_version(settings),
        "mpi": output_of("mpirun", "--version").splitlines()[:1],
        "python, torch": torch_versions(settings.python),
        "blas": os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3"),
        "load average before": os.getloadavg()[0],
    }
    facts["mpi"] = facts["mpi"][0] if facts["mpi"] else "none"
    if settings.newest:
        facts["newest python, torch"] = torch_versions(settings.newest)
    return facts


def onednn_version(settings):
    try:
        return run_json([settings.built("bench_primitives"), "--repeats", "1", "--batch",
                         "1"])["onednn"]
    except Failed:
        return "unknown"


def file_stem(facts):
    cpu = re.sub(r"\((R|TM)\)", "", facts["cpu"]).lower()
    cpu = re.sub(r"[^a-z0-9]+", "-", cpu).strip("-")
    return f"{facts['date'][:10]}-{cpu}"


def verdict(row, value):
    """"met, and more", "met", "missed", or "" if the row has no goal."""
    if row.least is None:
        return ""
    if row.sign == "+-":
        return "met" if abs(value - 1) <= row.least else "missed"

    def met(goal):
        return value >= goal if row.sign == ">=" else value <= goal
    if row.strive is not None and met(row.strive):
        return "met, and more"
    return "met" if met(row.least) else "missed"


def why(reason):
    """The message of a program, without its command line."""
    return reason.split("error: ")[-1]


def figure(row, measured):
    """A row of the table as JSON: both sides, ratio and verdict, or the reason why a side is
    missing."""
    made = {"line": row.line, "what": row.what, "unit": row.unit, "sign": row.sign,
            "least": row.least, "strive": row.strive}
    for name in filter(None, (row.above, row.below)):
        if name not in measured.values:
            return {**made, "missing": f"{name}: {why(measured.reason(name))}"}
    above = measured.values[row.above]
    made["above"] = {"name": row.above, **summary(above)}
    value = made["above"]["median"]
    if row.below:
        below = measured.values[row.below]
        made["below"] = {"name": row.below, **summary(below)}
        made["ratio"] = summary(ratios(above, below))
        made["ratio"]["of_medians"] = value / made["below"]["median"]
        value = made["ratio"]["median"]
    return {**made, "verdict": verdict(row, value)}


def figures(line, measured):
    return [figure(row, measured) for row in ROWS if row.line == line]


def number(value):
    if value >= 1e5:
        return f"{value / 1e6:.2f} M"
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def cell(part):
    if part is None:
        return ""
    text = part.get("name", "") + " " + number(part["median"])
    if part["count"] > 1:
        text += f" ({number(part['p10'])} to {number(part['p90'])})"
    return text.strip()


def goal(row, key):
    if row[key] is None:
        return ""
    if row["sign"] == "+-":
        return f"1 +- {row[key]}"
    return ("<= " if row["sign"] == "<=" else "") + number(row[key])


def table(rows):
    lines = ["| measure | unit | above | below | ratio | at least | strive for | |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        cells = [cell(row.get(key)) for key in ("above", "below", "ratio")]
        if "missing" in row:
            cells = ["missing", "", ""]
        lines.append("| " + " | ".join([
            row["what"], row["unit"], *cells, goal(row, "least"), goal(row, "strive"),
            row.get("verdict", "")]) + " |")
    return "\n".join(lines)


def other_lines(path, lines):
    """The entries of an earlier run of the day for lines that are not measured again, with
    the entries of its machine."""
    kept = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept = [json.loads(text) for text in file]
    for entry in kept:
        if entry["kind"] == "machine":
            entry["lines"] = [line for line in entry.get("lines", []) if line not in lines]
    return [entry for entry in kept
            if entry.get("line") not in lines and entry.get("lines") != []]


def in_order(entries):
    """The rows among the entries of a log, in the order of the table."""
    order = {row.what: place for place, row in enumerate(ROWS)}
    rows = [entry for entry in entries if entry["kind"] == "row"]
    return sorted(rows, key=lambda row: order.get(row["what"], len(order)))


def origins(entries):
    """A line about each run that the page contains."""
    runs = [entry for entry in entries if entry["kind"] == "machine"]
    return "\n".join(f"- measured {run['date']}, commit {run['commit']}, load average "
                     f"before {run['load average before']:.2f}: {', '.join(run['lines'])}"
                     for run in runs)


def page(facts, entries, invocation, jsonl, changes):
    rows = in_order(entries)
    commands = [command for entry in entries if entry["kind"] == "commands"
                for command in entry["commands"]]
    missing = [f"- {row['what']}: {row['missing']}" for row in rows if "missing" in row]
    parts = [
        f"# Measurements of {facts['date']}",
        f"`{invocation}`. Each cell is a median, in brackets the 10th and 90th percentile. "
        "The sides of a comparison ran in turn; a ratio is the median of the ratios of "
        f"neighboring runs. Every run is in [{jsonl}]({jsonl}).",
        table(rows),
    ]
    if missing:
        parts += ["Missing:", "\n".join(missing)]
    if changes:
        parts += ["## Changes", changes]
    parts += [
        "## Method",
        "One compute thread per rank (`OMP_NUM_THREADS=1`, `OPENBLAS_NUM_THREADS=1`). All "
        "sides read the same MNIST, with dropout on; model, batch size and optimizer come "
        "from its tutorial (`benchmarks/peers/models.py`). The step's batches are "
        "fetched beforehand on both sides. An epoch is a part of MNIST, timed from the "
        "first batch's fetch to the last step. All-reduces start after a barrier, and the "
        "slowest rank counts; Open MPI has its defaults. Start-up ends with the first step's "
        "line of output; the PyTorch side does not import torchvision. Memory is the highest "
        "proportional set size of both ranks together, without the process that started them; "
        "PyTorch's parent shares its ranks' libraries, which makes their figure smaller. "
        "The two hosts are network namespaces with a bridge between them, with `tc qdisc ... "
        "tbf rate ... latency 50ms` and a burst of 2 ms on both ends; each rank has its own "
        "core, and the first 10 steps are not counted. `plan` predicts from a step of one "
        "rank, and from all-reduces of 1 KB and of all gradients over the link.",
        "```\n" + "\n".join(commands) + "\n```",
        "## Machine",
        "\n".join(f"- {name}: {value}" for name, value in facts.items()) + "\n" +
        origins(entries),
    ]
    return "\n\n".join(parts) + "\n"
