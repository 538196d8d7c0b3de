"""Whole runs on this host: epochs, start-up, memory."""
import concurrent.futures
import json
import os
import signal
import subprocess
import tempfile
import time

from line_step import json_side
from measure import Failed, Side, run, run_json, run_sides, start, wall_ms
from models import tandem_flags
from table import SMALL

# Samples of a short epoch: a few seconds of PyTorch's time.
SAMPLES = {"net": 19200, "convnet": 12800, "net5x5": 25600, "simplenet": 51200,
           "lenet3x3": 12800, "convnet_bn": 19200}


def train_command(settings, model, nproc, limit, *flags):
    return [settings.program, "train", "--nproc", str(nproc), *tandem_flags(model),
            "--data", settings.data, "--limit", str(limit), *flags]


def train_summary(command):
    """Runs `tandem train` in a new directory, since a run rejects the checkpoints of another
    run."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        run([*command, "--out", folder])
        with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
            return json.load(file)


def our_epoch(name, command):
    def measure():
        found = train_summary(command)
        return {name: found["train_seconds"],
                name + " samples/s": found["samples_per_second"]}
    return Side(command, measure)


def lone_pair(name, command):
    """Two independent runs at once: the upper limit for two ranks on this host, whose cores
    may share caches and memory."""
    def measure():
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = list(pool.map(train_summary, [command] * 2))
        return {name + " samples/s": sum(run["samples_per_second"] for run in found)}
    return Side(["two at once:", *command], measure)


def ddp_command(settings, model, limit):
    return [settings.python, *settings.peer("ddp.py"), "--data", settings.data,
            "--model", model, "--nproc", "2", "--limit", str(limit)]


def limit_of(settings, model):
    return settings.size(SAMPLES[model], SAMPLES[model] // 10)


def epoch(settings, log):
    """net on two ranks of this host and on one, with loader and gradient reduction."""
    limit = limit_of(settings, "net")
    sides = {"DDP fp32": json_side(ddp_command(settings, "net", limit),
                                   {"DDP fp32": "train_seconds"})}
    for precision in ("fp32", "bf16"):
        flags = ["--executor", "onednn", "--precision", precision]
        for name, nproc in ((f"ours {precision}", 2), (f"1 rank {precision}", 1)):
            sides[name] = our_epoch(name, train_command(
                settings, "net", nproc, nproc * limit // 2, *flags))
        sides[f"2 lone runs {precision}"] = lone_pair(
            f"2 lone runs {precision}",
            train_command(settings, "net", 1, limit // 2, *flags))
    return run_sides(log, "epoch", settings.rounds(5), sides)


def models(settings, log):
    """The other five models on two ranks of this host."""
    sides = {}
    for model in SMALL:
        limit = limit_of(settings, model)
        sides[f"DDP {model}"] = json_side(ddp_command(settings, model, limit),
                                          {f"DDP {model}": "train_seconds"})
        sides[f"ours {model}"] = our_epoch(f"ours {model}", train_command(
            settings, model, 2, limit, "--executor", "onednn"))
    return run_sides(log, "models", settings.rounds(3), sides)


def until_line(name, command, mark):
    """Milliseconds from starting a command to a line that begins with `mark`."""
    def measure():
        begin = time.perf_counter()
        process = start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                        start_new_session=True)
        try:
            for line in process.stdout:
                if line.startswith(mark):
                    return {name: 1000 * (time.perf_counter() - begin)}
        finally:
            # Ends the processes that the command started, too.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
        raise Failed(f"{' '.join(command)}: ended without a line '{mark}'")
    return Side(command, measure)


def startup(settings, log):
    """Wall time from starting a program to its first training step, or to its end."""
    if not os.path.exists(os.path.join(settings.data, "train-images-idx3-ubyte.gz")):
        raise Failed("skipped: --data has no gzip files")
    ours = [settings.program, "train", "--model", "net", "--data", settings.data,
            "--executor", "onednn", "--log-every", "1", "--log-line", "first step"]
    sides = {"PyTorch": until_line("PyTorch", [
        settings.python, *settings.peer("startup.py"), "--data", settings.data], "first"),
        "ours": until_line("ours", ours, "first")}
    for name, arguments in (("help", ["--help"]), ("launch", ["launch", "true"])):
        command = [settings.program, *arguments]
        sides[name] = Side(command, lambda name=name, command=command: {
            name: wall_ms(command)})
    return run_sides(log, "startup", settings.rounds(11), sides)


def descendants(pid):
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
            for child in file.read().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


def pss_mib(pid, mark):
    """PSS of a process whose command line contains `mark`, else None."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            if mark not in file.read():
                return None
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


def peak_pss(name, command, mark):
    """Half of the highest memory that a run's two ranks have together, without the process
    that started them."""
    def measure():
        process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            sizes = [pss_mib(pid, mark) for pid in descendants(process.pid)]
            sizes = [size for size in sizes if size]
            if len(sizes) == 2:
                peak = max(peak, sum(sizes) / 2)
            time.sleep(0.1)
        if process.returncode != 0 or peak == 0:
            raise Failed(f"{' '.join(command)}: exit code {process.returncode}")
        return {name: peak}
    return Side(command, measure)


def memory(settings, log):
    """Memory of two ranks that train net (proportional set size, peak)."""
    limit = settings.size(6400, 1280)
    # The peer does not evaluate. With the default of 1000, tandem's evaluation needs more
    # memory than training.
    ours = train_command(settings, "net", 2, limit, "--executor", "onednn",
                         "--eval-batch-size", "64")
    return run_sides(log, "memory", settings.rounds(3), {
        "PyTorch": peak_pss("PyTorch", ddp_command(settings, "net", limit), "spawn_main"),
        "ours": peak_pss("ours", ours, "tandem-worker")})
