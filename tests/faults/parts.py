"""The parts of scripts/faults: (settings) -> rows of its table."""
import contextlib
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from hosts import Hosts
from lossy_hosts import LossyHosts, enter
from trial import (FREE_WAYS, GRACE, TIMEOUT, TWO_HOSTS, WAYS, Trial, kill, parent_of,
                   stalled_pipe, text_of)

SLACK = 5


class Wrong(Exception):
    """An unexpected result, in one line."""


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="tandem-faults-")
    try:
        yield os.path.join(path, "run")
    finally:
        shutil.rmtree(path, ignore_errors=True)


def undisturbed(settings, flags, hosts=None, within=120):
    """Runs without faults; returns the hash of the parameters and the seconds."""
    with folder() as out:
        trial = Trial(settings.program, flags, out, hosts)
        trial.start()
        ends = trial.finish(within)
        trial.end_all()
        if any(code != 0 for code, _, _ in ends):
            raise Wrong(f"an undisturbed run of {flags} ended with {ends}")
        return trial.summary()["parameters_sha256"], time.monotonic() - trial.begun


def go_on(trial, wanted):
    """Resumes; raises Wrong if the bits differ."""
    trial.start(resume=True)
    ends = trial.finish(120)
    if any(code != 0 for code, _, _ in ends):
        raise Wrong(f"resumed, it ended with {ends}")
    got = trial.summary().get("parameters_sha256")
    if wanted is not None and got != wanted:
        raise Wrong(f"other bits: {got} for {wanted}")


def kill_once(settings, flags, wanted, seconds, hosts=None):
    """Kills a part of the run at a random moment and resumes. Returns the killed part and
    whether a save was in progress; None if the run had ended before."""
    who = random.choice(["rank", "ranks", "launcher", "everything"]
                        + (["host"] * 2 if hosts else []))
    with folder() as out:
        trial = Trial(settings.program, flags, out, hosts)
        trial.start()
        try:
            if random.random() < 0.5:
                trial.wait_for_save(random.randint(1, 12))
            else:
                time.sleep(random.uniform(0.2, seconds))
            if any(launcher.poll() is not None for launcher in trial.launchers):
                return None
            for pid in trial.victims(who):
                kill(pid, signal.SIGKILL)
            ends = trial.finish(TIMEOUT + SLACK)
            if any(code is None for code, _, _ in ends):
                raise Wrong(f"{who} was killed, and after {TIMEOUT + SLACK} s it {ends}")
            if not trial.gone_within(1):
                raise Wrong(f"{who} was killed, and something runs after 1 s")
            saving = trial.saves()
            go_on(trial, wanted)
            return who, saving
        finally:
            trial.end_all()


def repeat(settings, count, trial):
    """Returns `count` results that are not None, running settings.jobs trials at a time.
    `trial` gets the number of the try."""
    results, wrong = [], []

    def once(number):
        try:
            return trial(number)
        except Wrong as error:
            print(f"  {error}", flush=True)
            wrong.append(str(error))
            return "wrong"

    number = 0
    with ThreadPoolExecutor(settings.jobs) as pool:
        while len(results) < count:
            some = range(number, number + min(settings.jobs * 4, count - len(results)))
            number = some.stop
            results += [result for result in pool.map(once, some) if result is not None]
            print(f"  {len(results)} of {count}, {len(wrong)} wrong", flush=True)
    return [result for result in results if result != "wrong"], wrong


def kills(settings):
    """SIGKILL of a rank, all ranks, the launcher, everything, at random moments."""
    known = {name: undisturbed(settings, flags) for name, flags in WAYS.items()}
    names = list(WAYS)

    def trial(number):
        name = names[number % len(names)]
        return kill_once(settings, WAYS[name], *known[name])

    results, wrong = repeat(settings, settings.runs or 150, trial)
    return [row("random SIGKILL, one host, " + ", ".join(names), results, wrong)]


def host_kills(settings):
    """As kills(), on two hosts, and also of a whole host."""
    settings = settings._replace(jobs=1)
    rows = []
    with Hosts(2) as hosts:
        known = {name: undisturbed(settings, flags, hosts)
                 for name, flags in TWO_HOSTS.items()}
        names = list(TWO_HOSTS)

        def trial(number):
            name = names[number % len(names)]
            return kill_once(settings, TWO_HOSTS[name], *known[name], hosts)

        results, wrong = repeat(settings, settings.runs or 50, trial)
        rows.append(row("random SIGKILL, " + ", ".join(names), results, wrong))
    return rows


def row(name, results, wrong):
    who = Counter(killed for killed, _ in results)
    saving = sum(saves for _, saves in results)
    return (name, len(results) + len(wrong), len(results),
            f"{saving} in the middle of a save; killed: "
            + ", ".join(f"{one} {count}" for one, count in sorted(who.items())), wrong)


def launchers(settings):
    """SIGKILL of the launcher: no process of the run exists after 1 s."""
    ways = [flags for name, flags in WAYS.items() if name not in ("one rank", "threads")]

    def trial(number):
        with folder() as out:
            run = Trial(settings.program, ways[number % len(ways)], out)
            run.start()
            try:
                time.sleep(random.uniform(0, 1.5))
                if run.launchers[0].poll() is not None:
                    return None
                kill(run.launchers[0].pid, signal.SIGKILL)
                run.launchers[0].wait()
                if not run.gone_within(1):
                    raise Wrong("something runs 1 s after the launcher")
                return True
            finally:
                run.end_all()

    results, wrong = repeat(settings, settings.runs or 100, trial)
    return [("SIGKILL of the launcher", len(results) + len(wrong), len(results),
             "nothing runs after 1 s", wrong)]


def stop_once(settings, flags, wanted, seconds, sent, errors, output):
    """Sends a signal to the launcher at a random moment and resumes; None if the run had
    ended before."""
    with folder() as out:
        run = Trial(settings.program, flags, out)
        run.start(errors=errors, output=output)
        try:
            time.sleep(random.uniform(0.1, seconds))
            if run.launchers[0].poll() is not None:
                return None
            kill(run.launchers[0].pid, sent)
            code, line, _ = run.finish(GRACE + 2)[0]
            if code == 0:
                return None
            if code is None or not run.gone_within(1):
                raise Wrong(f"{sent.name}: {line}")
            if run.last_step() > run.saved_step():
                raise Wrong(f"{sent.name}: step {run.last_step()} done, "
                            f"{run.saved_step()} saved ({line})")
            go_on(run, wanted)
            return True
        finally:
            run.end_all()


def in_every_way(settings, name, seen, trial):
    """Calls `trial` with its number, flags, expected bits and seconds, 20 times for each
    way of training."""
    rows = []
    for way, flags in {**WAYS, **FREE_WAYS}.items():
        wanted, seconds = undisturbed(settings, flags)
        if way in FREE_WAYS:
            wanted = None
        results, wrong = repeat(settings, settings.runs or 20,
                                partial(trial, flags=flags, wanted=wanted, seconds=seconds))
        rows.append((f"{name}: {way}", len(results) + len(wrong), len(results),
                     seen + (", same bits" if wanted else ""), wrong))
    return rows


SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
SAVED = f"saved and ended within {GRACE + 2} s"


def signals(settings):
    """SIGTERM, SIGINT, SIGHUP at random moments: the run saves, ends within the grace + 2 s,
    and has equal bits after a resume."""
    return in_every_way(
        settings, "SIGTERM, SIGINT, SIGHUP", SAVED,
        lambda number, flags, wanted, seconds: stop_once(
            settings, flags, wanted, seconds, SIGNALS[number % 3], subprocess.PIPE,
            subprocess.DEVNULL))


def readers(settings):
    """As signals(), but the output goes to a pipe that is full and not read."""
    def trial(number, flags, wanted, seconds):
        with stalled_pipe() as pipe:
            return stop_once(settings, flags, wanted, seconds, SIGNALS[number % 3], pipe, pipe)

    return in_every_way(settings, "a signal, and a stalled reader", SAVED, trial)


def fill_once(settings, flags, wanted, seconds):
    """Fills the disk of a run at a random moment, frees it and resumes."""
    with small_disk() as disk:
        run = Trial(settings.program, flags, os.path.join(disk, "run"))
        run.start()
        try:
            time.sleep(random.uniform(0.1, seconds))
            fill(os.path.join(disk, "full"))
            code, line, _ = run.finish(TIMEOUT + SLACK)[0]
            if code == 0:
                return None
            if code != 1 or "No space left on device" not in line:
                raise Wrong(f"on a full disk it ended with {code}: {line}")
            if not run.gone_within(1):
                raise Wrong("something runs 1 s after the end on a full disk")
            os.remove(os.path.join(disk, "full"))
            go_on(run, wanted)
            return True
        finally:
            run.end_all()
            run.gone_within(5)


@contextlib.contextmanager
def small_disk():
    path = tempfile.mkdtemp(prefix="tandem-faults-disk-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tandem-faults", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)
        os.rmdir(path)


def fill(path):
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def disks(settings):
    """The disk is full from a random moment on: one line, and equal bits after a resume
    with free space."""
    return in_every_way(
        settings, "a full disk", "one line",
        lambda number, flags, wanted, seconds: fill_once(settings, flags, wanted, seconds))


def links(settings):
    """Two hosts with a lossy network between them: equal bits."""
    flags = [*TWO_HOSTS["two hosts"], "--limit", "400", "--timeout-seconds", "60"]
    with Hosts(2) as hosts:
        wanted, _ = undisturbed(settings, flags, hosts)
    rows = []
    for loss, delay in ((0.1, 0), (0.02, 0.05)):
        with LossyHosts(loss, delay) as hosts:
            got, seconds = undisturbed(settings, flags, hosts, within=400)
            wrong = [] if got == wanted else [f"other bits: {got} for {wanted}"]
            rows.append((
                f"{100 * loss:g} % of packets lost, {1000 * delay:g} ms delay", 1,
                1 - len(wrong), f"same bits, after {seconds:.0f} s; {hosts.lost} of "
                f"{hosts.lost + hosts.passed} packets lost", wrong))
    return rows


def silence(settings):
    """Hosts and ranks that neither end nor answer: all launchers end within the timeout +
    5 s, with the same line."""
    def cut(trial):
        hosts = trial.hosts
        subprocess.run(["ip", "-n", hosts.names[1], "link", "set", hosts.links[1], "down"],
                       check=True)

    def stop_rank(trial):
        kill(random.choice(trial.ranks()), signal.SIGSTOP)

    def kill_host(trial):
        launcher = trial.launchers[1].pid
        for pid in trial.victims("everything"):
            if pid == launcher or parent_of(pid) == launcher:
                kill(pid, signal.SIGKILL)

    cases = {
        "SIGSTOP of a rank, one host": (False, WAYS["shared memory"], stop_rank),
        "SIGSTOP of a rank, Gloo": (False, WAYS["Gloo"], stop_rank),
        "SIGSTOP of a rank, two hosts": (True, TWO_HOSTS["two hosts"], stop_rank),
        "the link of a host down": (True, TWO_HOSTS["two hosts"], cut),
        "SIGKILL of all of host 1": (True, TWO_HOSTS["two hosts"], kill_host),
    }
    rows = []
    for name, (two, flags, fault) in cases.items():
        print(f"  {name}", flush=True)
        with contextlib.ExitStack() as stack:
            hosts = stack.enter_context(Hosts(2)) if two else None
            out = stack.enter_context(folder())
            trial = Trial(settings.program, [*flags, "--epochs", "2000"], out, hosts)
            trial.start()
            trial.wait_until_it_trains()
            fault(trial)
            begun = time.monotonic()
            ends = trial.finish(TIMEOUT + SLACK)
            trial.end_all()
        lines = [line for code, line, _ in ends if code != -signal.SIGKILL]
        seconds = [at - begun for code, _, at in ends if code != -signal.SIGKILL]
        wrong = [] if len(set(lines)) == 1 and "still runs" not in lines else [str(lines)]
        rows.append((name, 1, 1 - len(wrong),
                     f"ended after {max(seconds):.1f} s: {lines[0]}", wrong))
    return rows


JUNK, IDLE = 10_000, 2_000
# Seconds between two rounds: a stranger that sends without a pause would use up the
# cores, which is another fault. After JUNK connections the stranger slows down.
PAUSE, LONG_PAUSE = 0.01, 0.1


class Stranger(threading.Thread):
    """A process on another host that opens connections to every port of the run's hosts,
    from before they meet until the end. Most send junk; some send nothing and stay open."""

    def __init__(self, hosts, trial):
        super().__init__()
        self.hosts, self.trial = hosts, trial
        self.stop = threading.Event()
        self.sent = self.unanswered = 0
        self.idle, self.ports = [], set()

    def run(self):
        enter(f"/run/netns/{self.hosts.names[2]}")
        while not self.stop.is_set():
            doors = [(address, port) for i, address in enumerate(self.hosts.addresses[:2])
                     for port in listening_ports(self.trial.launchers[i].pid)]
            self.ports.update(doors)
            random.shuffle(doors)
            for door in doors or [(self.hosts.addresses[0], 29517)]:
                stays = [number < 4 and len(self.idle) < IDLE for number in range(20)]
                # Until a connection fails: ports of ranks exist for a moment only.
                all(map(partial(self.knock, door), stays))
            self.stop.wait(PAUSE if self.sent < JUNK else LONG_PAUSE)
        for one in self.idle:
            one.close()

    def knock(self, door, stays):
        """Connects once; returns whether the port accepted."""
        one = socket.socket()
        one.settimeout(0.1)
        try:
            one.connect(door)
            if stays:
                self.idle.append(one)
            else:
                one.sendall(os.urandom(random.randint(1, 3000)))
                self.sent += 1
            return True
        except TimeoutError:
            self.unanswered += 1
        except OSError:
            pass
        finally:
            if one not in self.idle[-1:]:
                one.close()
        return False


def listening_ports(pid):
    """Returns the listening ports of all processes on the host of `pid`."""
    rows = [line.split() for line in text_of(f"/proc/{pid}/net/tcp").splitlines()[1:]]
    return sorted({int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"})


def own_mib(pid):
    """Returns MiB without pages of files, whose number differs between runs."""
    for line in text_of(f"/proc/{pid}/status").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0


def peaks_of(trial, within):
    """Waits for the end; returns the highest memory of launchers and of ranks."""
    launcher = rank = 0
    deadline = time.monotonic() + within
    while any(one.poll() is None for one in trial.launchers) and time.monotonic() < deadline:
        launcher = max([launcher, *(own_mib(one.pid) for one in trial.launchers)])
        rank = max([rank, *(own_mib(pid) for pid in trial.ranks())])
        time.sleep(0.2)
    return launcher, rank


def strangers(settings):
    """A stranger connects to every port of a run on two hosts, from before its ranks meet
    to its end: equal bits, and at most 16 MiB more memory."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    rows = []
    for name in ("two hosts", "two hosts, Gloo"):
        flags = [*TWO_HOSTS[name], "--epochs", "150", "--checkpoint-every", "400"]
        with Hosts(3) as hosts, folder() as out:
            quiet = Trial(settings.program, flags, out + "-quiet", hosts)
            quiet.start()
            before = peaks_of(quiet, 120)
            ends = quiet.finish(10)
            trial = Trial(settings.program, flags, out, hosts)
            trial.start()
            stranger = Stranger(hosts, trial)
            stranger.start()
            after = peaks_of(trial, 240)
            stranger.stop.set()
            stranger.join()
            ends += trial.finish(10)
            trial.end_all()
            wrong = [str(end) for end in ends if end[0] != 0]
            if quiet.summary().get("parameters_sha256") != trial.summary().get("parameters_sha256"):
                wrong.append("other bits")
            if stranger.sent < JUNK / 10:
                wrong.append("the stranger was hardly there")
            more = [round(b - a, 1) for a, b in zip(before, after)]
            if max(more) > 16:
                wrong.append(f"{more} MiB more")
            if wrong:
                wrong += trial.said.splitlines()
        rows.append((f"strangers: {name}", 1, int(not wrong),
                     f"{stranger.sent} connections with junk, {len(stranger.idle)} idle, "
                     f"{stranger.unanswered} without an answer, to {len(stranger.ports)} "
                     f"ports; launcher {more[0]:+} MiB, rank "
                     f"{more[1]:+} MiB", wrong))
    return rows


PARTS = {"kills": kills, "host_kills": host_kills, "launchers": launchers,
         "signals": signals, "readers": readers, "disks": disks, "links": links,
         "silence": silence, "strangers": strangers}
