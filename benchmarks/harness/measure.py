"""Running commands, pairs of them in turn, and what the numbers say together."""
import json
import os
import shlex
import statistics
import subprocess
import time

# One compute thread per rank everywhere, and quiet libraries.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
               "GLOG_minloglevel": "2", "PYTHONDONTWRITEBYTECODE": "1"}


class Failed(Exception):
    """A line of the report cannot be measured; the message says why."""


def run(command, timeout=900):
    """Standard output of a command that must succeed."""
    try:
        done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Failed(f"{shlex.join(command)}: {lines[-1] if lines else done.returncode}")
    return done.stdout


def run_json(command):
    """The JSON object on the last line that a command prints."""
    return json.loads(run(command).strip().splitlines()[-1])


def wall_ms(command, times):
    """Wall-clock milliseconds of each of `times` runs, after two more."""
    values = []
    for i in range(-2, times):
        start = time.perf_counter()
        run(command)
        if i >= 0:
            values.append(1000 * (time.perf_counter() - start))
    return values


def quantile(values, q):
    values = sorted(values)
    place = q * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def summary(values):
    return {"median": statistics.median(values), "p10": quantile(values, 0.1),
            "p90": quantile(values, 0.9), "count": len(values)}


class Log:
    """The .jsonl beside the report: every single run."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")

    def add(self, **fields):
        self.file.write(json.dumps(fields) + "\n")
        self.file.flush()


def run_pairs(log, line, pairs, key, sides):
    """Runs two sides in turn, the first of a pair changing, so that what else the
    machine does falls on both. `sides` maps a name to a function that returns a
    dictionary, of which `key` is the number. Returns a list of numbers per name."""
    values = {name: [] for name in sides}
    for pair in range(pairs):
        order = list(sides) if pair % 2 == 0 else list(reversed(sides))
        for name in order:
            result = sides[name]()
            values[name].append(result[key])
            log.add(kind="run", line=line, pair=pair, side=name,
                    load=os.getloadavg()[0], **result)
            print(f"  pair {pair + 1}/{pairs}  {name}: {result[key]:.4g}", flush=True)
    return values


def ratios(above, below):
    return [a / b for a, b in zip(above, below)]
