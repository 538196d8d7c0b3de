"""Several hosts and their network on one machine: network namespaces that a bridge in a
further namespace connects, with a limited rate of each link."""
import itertools
import os
import secrets
import shlex
import subprocess
import tempfile
import time

from measure import ENVIRONMENT, Failed, run

# The burst is 2 ms of the rate. With a larger burst, the beginning of each step would see a
# faster link.
SHAPE = "tbf rate {rate} burst {burst}kb latency 50ms"
BURST_KB = {"1gbit": 256, "100mbit": 32}
PORT = "29517"
numbers = itertools.count()


class Hosts:
    """A context in which `count` namespaces exist. `rate` is a key of BURST_KB, or None for
    the speed of memory. Needs root."""

    def __init__(self, count, rate=None):
        number = f"{os.getpid() % 100000}.{next(numbers)}"
        self.rate = rate
        self.names = [f"tandem-bench-{number}.{i}" for i in range(count)]
        self.switch = f"tandem-bench-{number}.s"
        self.links = [f"tb{number}.{i}" for i in range(count)]
        self.addresses = [f"10.231.77.{i + 1}" for i in range(count)]

    def __enter__(self):
        if os.geteuid() != 0:
            raise Failed("skipped: network namespaces need root")
        try:
            self._set_up()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(self, *_):
        self._take_down()

    def _set_up(self):
        self._write_token()
        for name in [*self.names, self.switch]:
            run(["ip", "netns", "add", name])
        run(["ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge"])
        run(["ip", "-n", self.switch, "link", "set", "bridge", "up"])
        for i, (name, link) in enumerate(zip(self.names, self.links)):
            run(["ip", "link", "add", link, "netns", name, "type", "veth",
                 "peer", "name", f"port{i}", "netns", self.switch])
            run(["ip", "-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "up"])
            self._bring_up(i)
            if self.rate:
                run(["tc", "-n", name, "qdisc", "add", "dev", link, "root",
                     *SHAPE.format(rate=self.rate, burst=BURST_KB[self.rate]).split()])

    def _write_token(self):
        # All hosts share this file system.
        self.token = tempfile.NamedTemporaryFile("w", prefix="tandem-token-")
        self.token.write(secrets.token_hex(32))
        self.token.flush()

    def _bring_up(self, host):
        name, link = self.names[host], self.links[host]
        run(["ip", "-n", name, "addr", "add", self.addresses[host] + "/24", "dev", link])
        run(["ip", "-n", name, "link", "set", "lo", "up"])
        run(["ip", "-n", name, "link", "set", link, "up"])

    def _take_down(self):
        # This removes their links, too.
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL,
                           check=False)

    def host_command(self, host, command, variables=None):
        """The command on a host, pinned to one core, since real hosts share no core."""
        cores = sorted(os.sched_getaffinity(0))
        core = cores[host % len(cores)]
        variables = {**ENVIRONMENT, **(variables or {}),
                     "MASTER_ADDR": self.addresses[0], "MASTER_PORT": PORT,
                     "TANDEM_TOKEN_FILE": self.token.name,
                     "GLOO_SOCKET_IFNAME": self.links[host]}
        return ["ip", "netns", "exec", self.names[host], "taskset", "-c", str(core), "env",
                *(f"{name}={value}" for name, value in variables.items()), *command]

    def rank_command(self, rank, command):
        """The command as rank `rank` of 2 ranks on two hosts."""
        return self.host_command(
            rank, command, {"RANK": str(rank), "WORLD_SIZE": "2"})

    def run_ranks(self, commands):
        """Runs one rank per host until all end. Returns the output of rank 0."""
        return self.run([self.rank_command(i, command)
                         for i, command in enumerate(commands)])

    @staticmethod
    def run(commands, timeout=600):
        """Runs commands from host_command() concurrently until all end. Returns the output of
        the first."""
        outputs = [tempfile.TemporaryFile("w+") for _ in commands]
        ranks = [subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
                 for command, output in zip(commands, outputs)]
        deadline = time.monotonic() + timeout
        try:
            while any(rank.poll() is None for rank in ranks):
                failed = any(rank.poll() not in (None, 0) for rank in ranks)
                if failed or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
        for rank, output, command in zip(ranks, outputs, commands):
            output.seek(0)
            if rank.returncode != 0:
                tail = output.read().strip().splitlines()[-1:]
                raise Failed(f"{shlex.join(command)}: {tail or rank.returncode}")
        outputs[0].seek(0)
        return outputs[0].read()
