"""Runs a recipe or its PyTorch program once, for docs/tutorials/figures.json."""
import contextlib
import json
import os
import resource
import shlex
import tempfile
import time

import lines
from hosts import Hosts
from measure import Failed, run
from programs import EXAMPLES, MPIRUN, ROOT, recipe_path
from report import cpu_field, output_of

PEERS = os.path.join("benchmarks", "peers", "tutorials")
TIMEOUT = 3600
# Fields of summary.json that the record keeps unchanged.
SUMMARY = ("precision", "train_seconds", "test_accuracy", "test_loss", "samples_per_second",
           "bytes_sent_per_rank", "exposed_comm_ms_per_step", "peak_memory_mib")


def instruction_sets():
    flags = cpu_field("flags").split()
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
    return " ".join(name for name in wanted if name in flags) or "none of AVX2 and later"


def commit():
    changed = output_of("git", "-C", ROOT, "--no-optional-locks", "status", "--porcelain",
                        "--", "app", "tandem", "recipes", "benchmarks/peers")
    return output_of("git", "-C", ROOT, "rev-parse", "--short", "HEAD") + (
        " with changes" if changed else "")


def where():
    """The machine and its present load."""
    return {"date": time.strftime("%Y-%m-%d"), "cpu": cpu_field("model name"),
            "instruction_sets": instruction_sets(), "cores": len(os.sched_getaffinity(0)),
            "commit": commit(), "load": round(os.getloadavg()[0], 1)}


def used():
    """Present time, and user and system seconds of processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), children.ru_utime, children.ru_stime


def timed(program, command):
    """Standard output (of the first host, if there are several), and the seconds."""
    with contextlib.ExitStack() as stack:
        if program.hosts > 1:
            hosts = stack.enter_context(Hosts(program.hosts))
            commands = [hosts.host_command(i, [*command, "-nr", str(i)])
                        for i in range(program.hosts)]
        before = used()
        output = (hosts.run(commands, TIMEOUT) if program.hosts > 1
                  else run([*launcher(program), *command], TIMEOUT))
        after = used()
    names = ("seconds", "user", "sys")
    return output, {name: b - a for name, a, b in zip(names, before, after)}


def launcher(program):
    return [*MPIRUN, str(program.ranks)] if program.mpi else []


def shortened(program, epochs, limit):
    return (["--epochs", str(epochs)] if epochs != program.epochs else []) + (
        ["--limit", str(limit)] if limit else [])


def run_ours(args, program):
    epochs = min(program.ours_epochs, args.epochs or program.epochs)
    flags = [*program.flags, *shortened(program, epochs, args.limit)]
    told = [*launcher(program), "tandem", "train", f"recipes/{program.recipe}.toml", "--data",
            "mnist", *flags]
    made = {"command": shlex.join(told), **where()}
    with tempfile.TemporaryDirectory(prefix="tandem-tutorials-") as out:
        output, seconds = timed(program, [
            args.program, "train", recipe_path(program), "--data",
            args.data, *flags, "--out", os.path.join(out, "run")])
        with open(os.path.join(out, "run", "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
    made.update(seconds, epochs=lines.epochs_made(program, output) or epochs,
                limit=args.limit, ranks=summary["world_size"],
                **{name: summary[name] for name in SUMMARY})
    return {**made, **lines.recorded(program, output)}


def check_mpi4py(python):
    try:
        run([python, "-c", "import mpi4py"])
    except Failed as error:
        raise Failed("no mpi4py; apt-get install python3-mpi4py") from error


def run_peer(args, program):
    if program.mpi:
        check_mpi4py(args.python)
    epochs = min(program.peer_epochs, args.epochs or program.epochs)
    flags = [*program.peer[1:], *shortened(program, epochs, args.limit)]
    script = os.path.join(PEERS, program.peer[0])
    told = [*launcher(program), script, "--data", "FOLDER", *flags]
    made = {"command": shlex.join(told), **where()}
    output, seconds = timed(program, [
        args.python, os.path.join(ROOT, script), "--data", args.data, *flags])
    told = json.loads(next(line for line in reversed(output.splitlines())
                           if line.startswith("{")))
    made.update(seconds, epochs=lines.epochs_made(program, output) or epochs,
                limit=args.limit, ranks=program.ranks, train_seconds=told["train_seconds"],
                test_accuracy=told["test_accuracy"], torch=told["torch"])
    return {**made, **lines.recorded(program, output)}


def run_example(args, name):
    """The whole output of each side."""
    ours, peer = EXAMPLES[name]
    folder = os.path.dirname(os.path.realpath(args.program))
    programs = ("tandem", *EXAMPLES)
    command = [os.path.join(folder, word) if i in (0, len(ours) - 1) and word in programs
               else word for i, word in enumerate(ours)]
    made = {"ours": {"command": shlex.join(ours), **where(), "lines": run(command).splitlines()}}
    if peer:
        script = os.path.join(PEERS, peer[0])
        made["peer"] = {"command": shlex.join([script, *peer[1:]]), **where(), "lines": run(
            [args.python, os.path.join(ROOT, script), *peer[1:]]).splitlines()}
    return made
