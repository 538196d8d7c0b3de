"""A run of tandem with a fault, on one host or on two network namespaces: ways of
training, processes to kill, and files that remain."""
import contextlib
import json
import os
import random
import signal
import subprocess
import time

TIMEOUT = 10
GRACE = 10
COMMON = ["--model", "net5x5", "--limit", "1600", "--batch-size", "20",
          "--epochs", "4", "--checkpoint-every", "3", "--schedule", "step",
          "--timeout-seconds", str(TIMEOUT), "--grace-seconds", str(GRACE)]
PIPELINE = ["--strategy", "pipeline", "--micro-batches", "4"]
SERVER = ["--strategy", "parameter_server"]

# Ways of training with reproducible results.
WAYS = {
    "one rank": ["--nproc", "1"],
    "threads": ["--nproc", "3", "--rank-type", "thread"],
    "shared memory": ["--nproc", "3"],
    "every rank updates all": ["--nproc", "2", "--shard", "none"],
    "sharded parameters": ["--nproc", "3", "--shard", "parameters"],
    "Gloo": ["--nproc", "3", "--backend", "gloo"],
    "averaging": ["--nproc", "3", "--strategy", "averaging", "--average-every", "2"],
    "parameter server": ["--nproc", "3", *SERVER],
    "GPipe": ["--nproc", "2", *PIPELINE, "--pipeline-schedule", "gpipe"],
    "1F1B": ["--nproc", "3", *PIPELINE],
    "hybrid": ["--nproc", "4", *PIPELINE, "--stages", "2", "--replicas", "2"],
}
# Other ways of training, which can only be stopped and resumed.
FREE_WAYS = {
    "Hogwild": ["--nproc", "2", "--strategy", "hogwild"],
    "asynchronous server": ["--nproc", "3", *SERVER, "--server-updates", "asynchronous"],
    "averaging each epoch": ["--nproc", "2", "--strategy", "averaging"],
}
TWO_HOSTS = {
    "two hosts": ["--nproc", "2"],
    "two hosts, Gloo": ["--nproc", "2", "--backend", "gloo"],
    "two hosts, averaging": ["--nproc", "1", "--strategy", "averaging",
                             "--average-every", "2"],
}


def process_ids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def text_of(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def parent_of(pid):
    stat = text_of(f"/proc/{pid}/stat")
    return int(stat.rpartition(")")[2].split()[1]) if stat else 0


class Trial:
    """A run in the directory `out`. `hosts`: a Hosts, for a launcher on each of the first
    `num_hosts`."""

    def __init__(self, program, flags, out, hosts=None, num_hosts=2):
        self.program, self.flags, self.out, self.hosts = program, flags, out, hosts
        self.num_hosts = num_hosts
        self.launchers = []
        self.said = ""

    def start(self, resume=False, errors=subprocess.PIPE, output=subprocess.DEVNULL,
              only=None):
        """Starts the launchers, or the launchers of the hosts `only`."""
        flags = [*COMMON, *self.flags, "--out", self.out,
                 *(["--resume", "auto"] if resume else [])]
        # The last value of each flag.
        values = dict(zip(flags[::2], flags[1::2]))
        command = [self.program, "train", *(word for pair in values.items() for word in pair)]
        commands = [command]
        if self.hosts:
            commands = [
                self.hosts.host_command(i, [
                    *command, *([] if "--nnodes" in values else
                                ["--nnodes", str(self.num_hosts)]),
                    "--node-rank", str(i), "--master-addr", self.hosts.addresses[0],
                    "--master-port", "29517"])
                for i in range(self.num_hosts)]
        self.begun = time.monotonic()
        self.commands, self.streams = commands, {"stdout": output, "stderr": errors}
        self.launchers = [self.start_launcher(host) for host in only or range(len(commands))]

    def start_launcher(self, host):
        return subprocess.Popen(
            self.commands[host], text=True, start_new_session=True, **self.streams)

    def restart_launcher(self, host):
        """Starts the launcher of a host again, after its end."""
        _, errors = self.launchers[host].communicate()
        self.said += errors or ""
        self.launchers[host] = self.start_launcher(host)

    def finish(self, within):
        """Waits for the launchers; returns (code, last line, seconds) for each. `said` has
        all of their standard errors."""
        ends = []
        deadline = time.monotonic() + within
        for launcher in self.launchers:
            try:
                _, errors = launcher.communicate(timeout=max(0.1, deadline - time.monotonic()))
                self.said += errors or ""
                line = (errors or "").strip().splitlines()[-1:] or [""]
                ends.append((launcher.returncode, line[0], time.monotonic()))
            except subprocess.TimeoutExpired:
                ends.append((None, "still runs", time.monotonic()))
        return ends

    def processes(self):
        """Returns all processes of this run, without zombies."""
        return [pid for pid in process_ids()
                if self.out in text_of(f"/proc/{pid}/cmdline") and pid != os.getpid()
                and ") Z" not in text_of(f"/proc/{pid}/stat")]

    def ranks(self):
        launchers = {launcher.pid for launcher in self.launchers}
        children = [pid for pid in self.processes() if parent_of(pid) in launchers]
        return children or [pid for pid in launchers if os.path.exists(f"/proc/{pid}")]

    def victims(self, who):
        launcher = random.choice(self.launchers).pid
        if who == "launcher":
            return [launcher]
        if who == "rank":
            return [random.choice(self.ranks())]
        if who == "ranks":
            return self.ranks()
        if who == "host":
            return [launcher, *(pid for pid in self.processes()
                                if parent_of(pid) == launcher)]
        return self.processes()

    def saves(self):
        """Returns whether a checkpoint is half-written now."""
        try:
            return any(name.startswith("tmp-")
                       for name in os.listdir(os.path.join(self.out, "checkpoints")))
        except OSError:
            return False

    def wait_for_save(self, number):
        """Waits for the number-th half-written checkpoint, or for the end of the run."""
        there = False
        while any(launcher.poll() is None for launcher in self.launchers):
            now = self.saves()
            number -= now and not there
            there = now
            if there and number <= 0:
                return
            time.sleep(0.0003)

    def gone_within(self, seconds):
        deadline = time.monotonic() + seconds
        while self.processes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def end_all(self):
        for pid in self.processes():
            kill(pid, signal.SIGKILL)
        for launcher in self.launchers:
            launcher.wait()

    def summary(self):
        try:
            with open(os.path.join(self.out, "summary.json"), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def last_step(self):
        """Returns the last step in the metrics, counted from the beginning of the run."""
        lines = text_of(os.path.join(self.out, "metrics.jsonl")).splitlines()
        steps = [json.loads(line).get("step", 0) for line in lines if line.endswith("}")]
        return max(steps, default=0)

    def wait_until_it_trains(self):
        while not self.last_step() and self.launchers[0].poll() is None:
            time.sleep(0.05)

    def saved_step(self):
        try:
            names = os.listdir(os.path.join(self.out, "checkpoints"))
        except OSError:
            return 0
        return max((int(name[5:]) for name in names if name.startswith("step-")), default=0)


@contextlib.contextmanager
def stalled_pipe():
    """The write end of a pipe that is full and not read."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write_end, bytes(4096))
    os.set_blocking(write_end, True)
    try:
        yield write_end
    finally:
        os.close(read_end)
        os.close(write_end)


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
