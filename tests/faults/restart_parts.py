"""The parts of scripts/faults with --max-restarts: (settings) -> rows of its table."""
import os
import random
import signal
import statistics
import time

from hosts import Hosts
from parts import Wrong, folder, repeat, undisturbed
from trial import TWO_HOSTS, WAYS, Trial, kill, text_of

RESTARTS = ["--max-restarts", "3", "--log-every", "1", "--epochs", "12"]
# Seconds in which a restarted run must make a step, and in which a run must end.
RECOVERY, END = 60, 180


def modified(trial):
    try:
        return os.stat(os.path.join(trial.out, "metrics.jsonl")).st_mtime
    except OSError:
        return 0


def wait_for_next_step(trial, old_ranks, saved, killed):
    """Returns the seconds from the kill to the first step of the new ranks; None if the run
    ended before."""
    deadline = time.time() + RECOVERY
    while time.time() < deadline:
        if all(one.poll() is not None for one in trial.launchers):
            return None
        new = set(trial.ranks()) - old_ranks
        if new and modified(trial) > killed and trial.last_step() > saved:
            return modified(trial) - killed
        time.sleep(0.02)
    raise Wrong(f"no step within {RECOVERY} s after a kill")


def victims_of(trial, who):
    if who == "launcher of host 1":
        return [trial.launchers[1].pid]
    if who == "ranks of a host":
        launcher = random.choice(trial.launchers).pid
        return [pid for pid in trial.ranks()
                if f"\nPPid:\t{launcher}\n" in text_of(f"/proc/{pid}/status")]
    return [random.choice(trial.ranks())]


def restart_once(settings, flags, wanted, hosts=None):
    """Kills a part of the run at a random moment. Returns that part and the seconds to the
    next step; None if the run had ended before."""
    who = random.choice(["rank", "ranks of a host"]
                        + (["launcher of host 1"] if hosts else []))
    with folder() as out:
        trial = Trial(settings.program, [*flags, *RESTARTS], out, hosts)
        trial.start()
        try:
            trial.wait_until_it_trains()
            time.sleep(random.uniform(0, 1))
            old, saved, killed = set(trial.ranks()), trial.saved_step(), time.time()
            if any(one.poll() is not None for one in trial.launchers):
                return None
            for pid in victims_of(trial, who):
                kill(pid, signal.SIGKILL)
            if who == "launcher of host 1":
                trial.restart_launcher(1)
            seconds = wait_for_next_step(trial, old, saved, killed)
            ends = trial.finish(END)
            if any(code != 0 for code, _, _ in ends):
                raise Wrong(f"{who} was killed, and it ended with {ends}")
            summary = trial.summary()
            if summary.get("parameters_sha256") != wanted:
                raise Wrong(f"{who} was killed: other bits")
            if seconds is None or "restarts" not in summary:
                return None
            return who, seconds
        finally:
            trial.end_all()


def row(name, results, wrong):
    seconds = [one for _, one in results]
    said = "same bits"
    if seconds:
        said += (f"; next step after {statistics.median(seconds):.1f} s (median), "
                 f"{max(seconds):.1f} s (longest)")
    return name, len(results) + len(wrong), len(results), said, wrong


def restarts_in(settings, ways, runs, name, hosts=None):
    known = {way: undisturbed(settings, [*flags, "--epochs", "12"], hosts)[0]
             for way, flags in ways.items()}
    names = list(ways)

    def trial(number):
        way = names[number % len(names)]
        return restart_once(settings, ways[way], known[way], hosts)

    return [row(f"{name}: {', '.join(names)}", *repeat(settings, runs, trial))]


def restarts(settings):
    """SIGKILL of a rank or of all ranks, with restarts: equal bits."""
    return restarts_in(settings, WAYS, settings.runs or 70, "restarts, one host")


def host_restarts(settings):
    """As restarts(), on two hosts, and also of a launcher that is started again."""
    with Hosts(2) as hosts:
        return restarts_in(settings._replace(jobs=1), TWO_HOSTS, settings.runs or 30,
                           "restarts", hosts)


PARTS = {"restarts": restarts, "host_restarts": host_restarts}
