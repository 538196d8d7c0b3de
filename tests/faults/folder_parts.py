"""The parts of scripts/faults about the folder of a run: it disappears, or other commands
read it while the run saves. (settings) -> rows of the table of scripts/faults."""
import os
import random
import shutil
import subprocess
import time

from parts import SLACK, Wrong, folder, go_on
from trial import TIMEOUT, Trial
from wait_parts import expect_end, on_one_and_three_hosts


def remove(out):
    # Files that the run writes meanwhile end an attempt.
    while os.path.exists(out):
        shutil.rmtree(out, ignore_errors=True)


def rename(out):
    os.rename(out, out + "-moved")


def replace(out):
    rename(out)
    os.mkdir(out)


def link(out):
    rename(out)
    os.symlink(out + "-moved", out)


def replace_once(settings, flags, wanted, hosts=None):
    change = random.choice([remove, rename, replace, link])
    with folder() as out:
        trial = Trial(settings.program, flags, out, hosts, num_hosts=3)
        trial.start()
        try:
            trial.wait_until_it_trains()
            time.sleep(random.uniform(0, 0.5))
            if trial.launchers[0].poll() is not None:
                return None
            change(out)
            # While a folder is removed, its files disappear before itself.
            parts = [out] if change is remove else [f"'{out}'", "during the run, expected"]
            expect_end(trial, TIMEOUT + SLACK, parts)
            if os.path.isdir(out) and not os.path.islink(out) and os.listdir(out):
                raise Wrong(f"{change.__name__}: the run wrote {os.listdir(out)}")
            if not trial.gone_within(1):
                raise Wrong(f"{change.__name__}: something runs after 1 s")
            if change is remove:
                return True
            if os.path.islink(out):
                os.remove(out)
            elif os.path.isdir(out):
                os.rmdir(out)
            os.rename(out + "-moved", out)
            if hosts is None:
                go_on(trial, wanted)
            return True
        finally:
            trial.end_all()


def folders(settings):
    """The folder of a run is removed, renamed, or replaced by a folder or a link: all
    launchers end with one line, and nothing is written at the old name. On one host, a run
    whose folder is moved back has equal bits."""
    return on_one_and_three_hosts(settings, "the folder disappears", "named", replace_once)


def read(program, out):
    """Reads the newest checkpoint, like a user; raises Wrong unless the command works."""
    words = random.choice([
        ["eval", "--limit", "100", "--checkpoint", out],
        ["export", "--checkpoint", out, "--out", out + random.choice([".pt", ".safetensors"])]])
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60,
                          check=False)
    if done.returncode:
        raise Wrong(f"{words[0]}: {done.returncode}, {done.stderr.strip()}")


def read_once(settings, flags, wanted, hosts=None):
    flags = [*flags, "--checkpoint-every", "1", "--keep-checkpoints", "1"]
    with folder() as out:
        trial = Trial(settings.program, flags, out, hosts, num_hosts=3)
        trial.start()
        try:
            while not trial.saved_step() and trial.launchers[0].poll() is None:
                time.sleep(0.01)
            reads = 0
            while trial.launchers[0].poll() is None:
                read(settings.program, out)
                reads += trial.launchers[0].poll() is None
            ends = trial.finish(TIMEOUT + SLACK)
            if any(code != 0 for code, _, _ in ends):
                raise Wrong(f"with readers, the run ended with {ends}")
            if wanted not in (None, trial.summary().get("parameters_sha256")):
                raise Wrong("other bits")
            return reads or None
        finally:
            trial.end_all()


def evaluations(settings):
    """eval and export read a run that saves after each step and keeps one checkpoint: each
    command works. On one host, the run has equal bits."""
    return on_one_and_three_hosts(settings, "reads during saves", "all work", read_once)


PARTS = {"folders": folders, "evaluations": evaluations}
