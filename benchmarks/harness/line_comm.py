"""All-reduces on this host, training over links, and predictions of tandem plan."""
import contextlib
import json
import os
import tempfile

from line_train import train_command
from measure import Side, run, run_json, run_sides
from table import LINKS, RANKS, SIZES, WAYS
import hosts as namespaces

BACKENDS = ("gloo", "shm")
CROWD_BACKENDS = ("gloo", "shm+gloo")


def by_size(name, command, needs=None):
    """Milliseconds per size of a command that prints results. Shared memory, which training
    uses, has no suffix in the names; private memory has " private"."""
    names = {size: label for label, size in SIZES.items()}

    def measure():
        private = {"private": " private"}
        return {f"{name} {names[found['bytes']]}{private.get(found.get('memory'), '')}":
                found["ms"] for found in run_json(command, timeout=300)["results"]}
    return Side(command, measure, needs)


def allreduce(settings, log):
    """Sums of a buffer over two ranks on this host."""
    repeats = str(settings.size(30, 5))
    sizes = [str(size) for size in SIZES.values()]
    sides = {backend: by_size(backend, [
        settings.program, "bench", "allreduce", "--nproc", "2", "--backends", backend,
        "--bytes", ",".join(sizes), "--repeats", repeats, "--json"])
        for backend in BACKENDS}
    program = settings.built("bench_mpi_allreduce")
    sides["Open MPI"] = by_size("Open MPI", [
        "env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "mpirun",
        "-np", "2", program, *sizes, "--repeats", repeats], needs=program)
    return run_sides(log, "allreduce", settings.rounds(7), sides)


def plan_json(settings, *flags):
    return run_json([settings.program, "plan", *flags, "--json"])


def ms_per_step(folder):
    """Step time of a run directory, without the first report, since first steps are slow."""
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    reports = [line for line in lines if line["kind"] == "train"]
    first, last = reports[0], reports[-1]
    return (1000 * (last["train_seconds"] - first["train_seconds"])
            / (last["step"] - first["step"]))


def training(settings, nproc, ranks, steps, flags=()):
    """A command that starts `nproc` of `ranks` ranks."""
    return train_command(settings, "net", nproc, ranks * 64 * steps, "--executor",
                         "onednn", *flags)


def plan(settings, log):
    """Steps of 1, 2 and 4 ranks on this host, and predictions of tandem plan."""
    sides = {}
    for ranks in RANKS:
        measured = training(settings, ranks, ranks, settings.size(120, 30))
        sides[f"ranks {ranks}"] = Side(measured, lambda ranks=ranks, command=measured: {
            f"ranks {ranks}": train_ms(command)})
        flags = ["--measure", "--model", "net", "--data", settings.data, "--executor",
                 "onednn", "--nodes", "1", "--ranks-per-node", str(ranks)]
        sides[f"plan {ranks}"] = Side(
            [settings.program, "plan", *flags], lambda ranks=ranks, flags=flags: {
                f"plan {ranks}": plan_json(settings, *flags)["rows"][0]["step_ms"]})
    return run_sides(log, "plan", settings.rounds(3), sides)


def train_ms(command):
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        run([*command, "--out", folder])
        return ms_per_step(folder)


class Link:
    """Training and tandem plan on two hosts and the link between them."""

    def __init__(self, settings, name, hosts):
        self.settings = settings
        self.name = name
        self.hosts = hosts
        # A step over the slow link takes half a second.
        self.steps = settings.size(80 if name == "1 Gbit/s" else 40, 20)

    def command(self, way, out="OUT"):
        # One rank per host; rank_command() sets the variables that a launcher would set.
        return [*training(self.settings, 1, 2, self.steps, WAYS[way]), "--out", out]

    def train(self, way):
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
            self.hosts.run_ranks([self.command(way, f"{folder}/{rank}")
                                  for rank in range(2)])
            return {f"{self.name} {way}": ms_per_step(f"{folder}/0")}

    def crowd_command(self, host, backend, out="OUT"):
        # Two ranks per host, which the host's launcher starts.
        return self.hosts.host_command(host, [
            *training(self.settings, 2, 4, self.steps), "--nnodes", "2", "--node-rank",
            str(host), "--backend", backend, "--out", out])

    def train_crowd(self, backend):
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
            self.hosts.run([self.crowd_command(host, backend, f"{folder}/{host}")
                            for host in range(2)])
            return {f"{self.name} {backend}": ms_per_step(f"{folder}/0")}

    def everywhere(self, *arguments):
        command = [self.settings.program, "bench", *arguments, "--json"]
        return json.loads(self.hosts.run_ranks([command] * 2).strip().splitlines()[-1])

    def plan(self):
        """Predictions from a step of each host alone, two all-reduces over the link, and one
        on a single host."""
        step = self.everywhere("step", "--model", "net", "--data", self.settings.data,
                               "--executor", "onednn")
        total = sum(bucket["bytes"] for bucket in step["buckets"])
        sums = ["--nproc", "2", "--backends", "gloo", "--repeats", "10", "--bytes"]
        small, large = (found["ms"] for found in self.everywhere(
            "allreduce", *sums, f"1024,{total}")["results"])
        here = run_json([self.settings.program, "bench", "allreduce", *sums, str(total),
                         "--json"])["results"][0]["ms"]
        buckets = ",".join(f"{b['bytes']}@{b['lead_ms']}" for b in step["buckets"])
        flags = ["--nodes", "2", "--step-ms", str(step["ms_per_step"]), "--buckets",
                 buckets, "--latency-us", str(1000 * small / 2), "--bandwidth-gbit",
                 str(8e-6 * total / (large - small))]

        def predict(way):
            # The hook halves the bytes sent, and the work.
            cpu = here / 2 if "--comm-hook" in WAYS[way] else here
            return plan_json(self.settings, *flags, "--comm-cpu-ms", str(cpu),
                             *WAYS[way])["rows"][0]["step_ms"]
        return {f"plan {self.name} {way}": predict(way) for way in WAYS}

    def sides(self):
        sides = {f"{self.name} {way}": Side(
            self.hosts.rank_command(0, self.command(way)), lambda way=way: self.train(way))
            for way in WAYS}
        for backend in CROWD_BACKENDS:
            sides[f"{self.name} {backend}"] = Side(
                self.crowd_command(0, backend),
                lambda backend=backend: self.train_crowd(backend))
        sides[f"plan {self.name}"] = Side([self.settings.program, "plan", "..."], self.plan)
        return sides


def links(settings, log):
    """Training on two hosts over links of two speeds: overlapped, flat, and bf16 all-reduces,
    and two ranks per host with and without a reduction on each host first."""
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, rate in LINKS.items():
            hosts = stack.enter_context(namespaces.Hosts(2, rate))
            sides.update(Link(settings, name, hosts).sides())
        return run_sides(log, "links", settings.rounds(3), sides)
