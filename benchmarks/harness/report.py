"""The machine, and the page that the numbers become."""
import os
import re
import subprocess
import time

from measure import run_json


def cpu_field(name):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(name):
                return line.split(":", 1)[1].strip()
    return ""


def output_of(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False)
    return done.stdout.strip()


def machine(program, data):
    """What the numbers depend on."""
    about = run_json([program, "bench", "step", "--model", "simplenet", "--data", data,
                      "--steps", "1", "--warmup", "0", "--json"])
    versions = output_of("/usr/bin/python3", "-c", (
        "import torch, torchvision, PIL, sys;"
        "print(sys.version.split()[0], torch.__version__, torchvision.__version__,"
        "PIL.__version__);"
        "print([l.strip(' -') for l in torch.__config__.show().splitlines()"
        "       if 'capability' in l][0])")).splitlines()
    changed = output_of("git", "--no-optional-locks", "status", "--porcelain")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cpu": about["cpu"], "cpu_model": cpu_field("model\t"),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "instruction_sets": " ".join(about["instruction_sets"]),
        "system": " ".join(os.uname()[i] for i in (0, 2)),
        "tandem": output_of(program, "version"),
        "commit": output_of("git", "rev-parse", "--short", "HEAD") +
                  (" with changes" if changed else ""),
        "libtorch": about["libtorch"],
        "python, torch, torchvision, PIL": versions[0] if versions else "none",
        "torch": versions[1] if len(versions) > 1 else "",
        "blas": os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3"),
        "load average before": os.getloadavg()[0],
    }


def file_stem(facts):
    cpu = re.sub(r"\((R|TM)\)", "", facts["cpu"]).lower()
    cpu = re.sub(r"[^a-z0-9]+", "-", cpu).strip("-")
    return f"{facts['date'][:10]}-{cpu}"


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


def verdict(row):
    if row["goal"] is None:
        return ""
    sign, wanted = row["goal"]
    value = (row["ratio"] or row["ours"])["median"]
    met = value <= wanted if sign == "<=" else value >= wanted
    return f"{sign} {number(wanted)}: {'met' if met else 'missed'}"


def table(rows):
    lines = ["| what | unit | tandem | against | ratio | goal |",
             "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        cells = [cell(row[key]) for key in ("ours", "against", "ratio")]
        lines.append("| " + " | ".join([row["what"], row["unit"], *cells, verdict(row)]) +
                     " |")
    return "\n".join(lines)


def page(facts, rows, failures, invocation, jsonl):
    commands = [command for row in rows for command in row["commands"]]
    parts = [
        f"# Measurements of {facts['date']}",
        f"`{invocation}`. Each cell is a median, in brackets the 10th and 90th percentile. "
        "What is compared ran in turn, in pairs; a ratio is the median of the pairs' "
        f"ratios. Every single run is in [{jsonl}]({jsonl}).",
        table(rows),
    ]
    parts += [f"Not measured: {name}: {why}" for name, why in failures.items()]
    parts += [
        "## How",
        "One compute thread per rank (`OMP_NUM_THREADS=1`, `OPENBLAS_NUM_THREADS=1`). "
        "Both sides read the same MNIST, with dropout on, batch 64, Adadelta, lr 1. "
        "The step's batches are fetched beforehand on both sides. The rate of two ranks "
        "counts training only, the loader included, from the first step on. The two "
        "hosts are network namespaces joined by a veth pair with `tc qdisc ... tbf rate "
        "1gbit burst 256kb latency 50ms` on both ends; each rank has a core of its own "
        "(`taskset`), as on a host of its own, and the first 10 steps are not counted.",
        "```\n" + "\n".join(commands) + "\n```",
        "## Where",
        "\n".join(f"- {name}: {value}" for name, value in facts.items()),
    ]
    return "\n\n".join(parts) + "\n"
