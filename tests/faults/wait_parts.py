"""The parts of scripts/faults about processes and links that neither end nor answer, and
about hosts that must not join: (settings) -> rows of its table."""
import contextlib
import os
import random
import signal
import subprocess
import time

from hosts import Hosts
from parts import SLACK, Wrong, folder, go_on, repeat, undisturbed
from trial import GRACE, TIMEOUT, WAYS, Trial, kill, text_of

# Seconds between SIGTERM and SIGKILL after a failure, and then until a process is left.
AFTER_FAILURE, LEFT = 5, 5
LINK = 15
SEVERAL = {name: WAYS[name] for name in ("shared memory", "Gloo", "GPipe")}
FREEZER = "/sys/fs/cgroup/freezer/tandem-faults"


@contextlib.contextmanager
def freezer():
    """A function that freezes a process by its control group, until the context ends."""
    group = f"{FREEZER}-{os.getpid()}-{random.randrange(10**9)}"
    os.mkdir(group)

    def write(file, text):
        with open(os.path.join(group, file), "w", encoding="ascii") as stream:
            stream.write(text)

    def freeze(pid):
        write("cgroup.procs", str(pid))
        write("freezer.state", "FROZEN")

    try:
        yield freeze
    finally:
        write("freezer.state", "THAWED")
        while True:
            with contextlib.suppress(OSError):
                os.rmdir(group)
                break
            time.sleep(0.05)


def expect_end(trial, within, parts):
    """Waits for the launchers; raises Wrong unless all fail with one line with `parts`."""
    ends = trial.finish(within)
    lines = {line for _, line, _ in ends}
    if any(code in (None, 0) for code, _, _ in ends) or len(lines) != 1:
        raise Wrong(f"after {within} s: {ends}")
    line = lines.pop()
    if not all(part in line for part in parts):
        raise Wrong(f"{line!r} lacks {parts}")


def wait_for_launchers(trial, within):
    deadline = time.monotonic() + within
    while any(launcher.poll() is None for launcher in trial.launchers):
        if time.monotonic() > deadline:
            raise Wrong(f"a launcher still runs after {within} s")
        time.sleep(0.05)


def frozen_once(settings, flags, wanted, hosts=None):
    with folder() as out:
        trial = Trial(settings.program, flags, out, hosts, num_hosts=3)
        with freezer() as freeze:
            trial.start()
            try:
                trial.wait_until_it_trains()
                ranks = trial.ranks()
                if trial.launchers[0].poll() is not None or not ranks:
                    trial.end_all()
                    return None
                pid = random.choice(ranks)
                freeze(pid)
                within = TIMEOUT + AFTER_FAILURE + LEFT + SLACK
                wait_for_launchers(trial, within)
            except BaseException:
                trial.end_all()
                raise
        # The rank keeps the pipe of the launcher's standard error until it is thawed.
        try:
            expect_end(trial, SLACK, [f"(pid {pid})"])
        finally:
            trial.end_all()
        if not trial.gone_within(5):
            raise Wrong("something runs after the frozen rank was thawed")
        go_on(trial, wanted)
        return True


LONG = ["--epochs", "40"]


def on_one_and_three_hosts(settings, name, seen, once):
    """Calls `once` as often on one host, divided among SEVERAL, as on three hosts. Only on
    one host, it gets the bits of an undisturbed run."""
    count = settings.runs or 15
    rows = []
    for way, flags in SEVERAL.items():
        flags = [*flags, *LONG]
        wanted, _ = undisturbed(settings, flags)
        results, wrong = repeat(settings, max(1, count // len(SEVERAL)),
                                lambda _, f=flags, w=wanted: once(settings, f, w))
        rows.append((f"{name}: {way}", len(results) + len(wrong), len(results),
                     f"{seen}, same bits", wrong))
    flags = ["--nproc", "1", *LONG]
    with Hosts(3) as hosts:
        settings = settings._replace(jobs=1)
        results, wrong = repeat(settings, count, lambda _: once(settings, flags, None, hosts))
    rows.append((f"{name}: three hosts", len(results) + len(wrong), len(results), seen, wrong))
    return rows


def frozen(settings):
    """A rank that its control group freezes, so that SIGKILL does not end it: all launchers
    end with one line that names the rank."""
    return on_one_and_three_hosts(settings, "a frozen rank", "named", frozen_once)


def loader_of(trial):
    """Waits for a process that loads the program, and returns it."""
    while trial.launchers[0].poll() is None:
        workers = [pid for pid in trial.ranks() if pid not in
                   {launcher.pid for launcher in trial.launchers}
                   and text_of(f"/proc/{pid}/comm").startswith("tandem")]
        if workers:
            return random.choice(workers)
    return None


def loading_once(settings, flags, wanted, hosts=None):
    with folder() as out:
        trial = Trial(settings.program, flags, out, hosts, num_hosts=3)
        trial.start()
        try:
            pid = loader_of(trial)
            if pid is None:
                return None
            time.sleep(random.uniform(0, 0.3))
            kill(pid, signal.SIGSTOP)
            time.sleep(0.05)
            if ") T" not in text_of(f"/proc/{pid}/stat"):
                return None
            expect_end(trial, TIMEOUT + AFTER_FAILURE + SLACK, ["rank"])
        finally:
            trial.end_all()
        if wanted is not None:
            go_on(trial, wanted)
        return True


def loading(settings):
    """SIGSTOP of a process while it loads the program: one line, within the timeout."""
    return on_one_and_three_hosts(settings, "stopped while loading", "named", loading_once)


def cut(hosts, one, other):
    """Loses all packets between two hosts: they use an unknown hardware address."""
    for here, there in ((one, other), (other, one)):
        subprocess.run(["ip", "-n", hosts.names[here], "neigh", "replace",
                        hosts.addresses[there], "lladdr", "02:00:00:00:00:99", "dev",
                        hosts.links[here], "nud", "permanent"], check=True)


def links12(settings):
    """Three hosts, and a broken link between hosts 1 and 2: all name both."""
    def once(_):
        with Hosts(3) as hosts, folder() as out:
            flags = ["--nproc", "1", "--epochs", "2000", "--timeout-seconds", "60"]
            trial = Trial(settings.program, flags, out, hosts, num_hosts=3)
            trial.start()
            try:
                trial.wait_until_it_trains()
                time.sleep(random.uniform(0, 2))
                cut(hosts, 1, 2)
                expect_end(trial, LINK + AFTER_FAILURE + SLACK,
                           [f"host 1 at {hosts.addresses[1]} and host 2 at "
                            f"{hosts.addresses[2]} have had no contact"])
                return True
            finally:
                trial.end_all()

    results, wrong = repeat(settings._replace(jobs=1), settings.runs or 5, once)
    return [("the link between hosts 1 and 2", len(results) + len(wrong), len(results),
             "both are named", wrong)]


WRONG_FLAGS = (["--lr", "0.5"], ["--model", "simplenet"], ["--validation", "0.1"],
               ["--data", "/missing"], ["--strategy", "averaging"], ["--limit", "1000"])


def join_once(settings, number):
    with Hosts(2) as hosts, folder() as out:
        flags = ["--nproc", "1", "--nnodes", "1:2", "--epochs", "2000", "--max-restarts", "3"]
        trial = Trial(settings.program, flags, out, hosts, num_hosts=1)
        trial.start()
        try:
            trial.wait_until_it_trains()
            ranks = trial.ranks()
            wrong = WRONG_FLAGS[number % len(WRONG_FLAGS)]
            joiner = Trial(settings.program, [*flags, *wrong], out, hosts)
            joiner.start(only=[1])
            code, line, _ = joiner.finish(TIMEOUT + SLACK)[0]
            if code != 2:
                raise Wrong(f"{wrong}: {code}, {line}")
            if trial.ranks() != ranks or trial.launchers[0].poll() is not None:
                raise Wrong(f"{wrong}: the run was disturbed")
            kill(trial.launchers[0].pid, signal.SIGTERM)
            ends = trial.finish(GRACE + SLACK)
            if ends[0][0] != 75:
                raise Wrong(f"{wrong}: {ends}")
            return True
        finally:
            trial.end_all()


def joins(settings):
    """A host with other settings or data joins: it is refused, and the run continues."""
    results, wrong = repeat(settings._replace(jobs=1), settings.runs or len(WRONG_FLAGS),
                            lambda number: join_once(settings, number))
    return [("a wrong host joins", len(results) + len(wrong), len(results),
             "refused with code 2, the ranks continue", wrong)]


PARTS = {"frozen": frozen, "loading": loading, "links12": links12, "joins": joins}
