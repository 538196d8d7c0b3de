"""Runs commands and the sides of a comparison, and summarizes their numbers."""
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
    """Something cannot be measured; the message says why."""


def start(command, **options):
    try:
        return subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, text=True,
                                **options)
    except OSError as error:
        raise Failed(str(error)) from error


def run(command, timeout=900):
    """Runs a command that must succeed. Returns its standard output."""
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException as error:
        process.kill()
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"{shlex.join(command)}: still running after {timeout} s") from error
        raise
    if process.returncode != 0:
        lines = (errors or output).strip().splitlines()
        raise Failed(f"{shlex.join(command)}: {lines[-1] if lines else process.returncode}")
    return output


def run_json(command, timeout=900):
    """Runs a command. Returns the JSON object on the last line of its output."""
    try:
        return json.loads(run(command, timeout).strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise Failed(f"{shlex.join(command)}: its last line is not JSON") from error


def wall_ms(command):
    begin = time.perf_counter()
    run(command)
    return 1000 * (time.perf_counter() - begin)


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
    """The .jsonl of a report, with an entry per run."""

    def __init__(self, path, entries=()):
        self.file = open(path, "w", encoding="utf-8")
        self.entries = []
        for entry in entries:
            self.add(**entry)

    def add(self, **fields):
        self.entries.append(fields)
        self.file.write(json.dumps(fields) + "\n")
        self.file.flush()


class Side:
    """One side of a comparison. `measure()` returns {name of a value: number}. The report
    shows `command`. If the program `needs` is missing, the side is skipped."""

    def __init__(self, command, measure, needs=None):
        self.command = command
        self.measure = measure
        self.needs = needs


def measure(side):
    """The values of a side. Unexpected output, for instance of another version, fails only
    this side."""
    if side.needs and not os.access(side.needs, os.X_OK):
        raise Failed(f"{side.needs} is missing; build the target "
                     f"{os.path.basename(side.needs)}")
    try:
        return side.measure()
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError,
            OSError) as error:
        raise Failed(f"{shlex.join(side.command)}: its output was not understood "
                     f"({type(error).__name__}: {error})") from error


class Measured:
    """The result of a line: a list of numbers per value, commands, and the reasons why sides
    are missing."""

    def __init__(self):
        self.values = {}
        self.commands = []
        self.missing = {}

    def add(self, result):
        for name, number in result.items():
            self.values.setdefault(name, []).append(number)

    def reason(self, name):
        """The reason why a value is missing."""
        for side, why in self.missing.items():
            if name.startswith(side) or len(self.commands) == 1:
                return why
        return "not measured"


def run_sides(log, line, rounds, sides):
    """Measures all sides in turn, in alternating order, so that other load of the machine
    affects all equally. A side that fails is skipped in later rounds."""
    measured = Measured()
    measured.commands = [shlex.join(side.command) for side in sides.values()]
    for number in range(rounds):
        for name in list(sides) if number % 2 == 0 else list(reversed(sides)):
            if name in measured.missing:
                continue
            try:
                result = measure(sides[name])
            except Failed as error:
                measured.missing[name] = str(error)
                log.add(kind="missing", line=line, side=name, reason=str(error))
                print(f"  {name}: missing: {error}", flush=True)
                continue
            measured.add(result)
            log.add(kind="run", line=line, round=number, side=name,
                    load=os.getloadavg()[0], values=result)
            text = ", ".join(f"{key} {value:.4g}" for key, value in result.items())
            print(f"  {number + 1}/{rounds}  {text}", flush=True)
    return measured


def ratios(above, below):
    return [a / b for a, b in zip(above, below)]
