"""All-reduce on this host; training over links; what tandem plan says of both."""
from line_train import train_command, train_summary
from measure import Failed, Side, run_json, run_sides
from table import LINKS, RANKS, SIZES, WAYS
import two_hosts

BACKENDS = ("gloo", "shm")


def by_size(name, command, timeout=300):
    """Milliseconds per size of a command that prints results."""
    names = {size: label for label, size in SIZES.items()}

    def measure():
        return {f"{name} {names[found['bytes']]}": found["ms"]
                for found in run_json(command, timeout)["results"]}
    return Side(command, measure)


def allreduce(settings, log):
    """Sums of a buffer over two ranks on this host."""
    repeats = str(settings.size(30, 5))
    sizes = [str(size) for size in SIZES.values()]
    sides = {backend: by_size(backend, [
        settings.program, "bench", "allreduce", "--nproc", "2", "--backends", backend,
        "--bytes", ",".join(sizes), "--repeats", repeats, "--json"])
        for backend in BACKENDS}
    sides["Open MPI"] = by_size("Open MPI", [
        "env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "mpirun",
        "-np", "2", settings.built("bench_mpi_allreduce"), *sizes, "--repeats", repeats])
    return run_sides(log, "allreduce", settings.rounds(7), sides)


def plan_ms(settings, measurement, ranks_per_node, nodes, *flags):
    """What tandem plan predicts for a step, from what it measured itself."""
    found = run_json([settings.program, "plan", "--from", measurement, "--nodes",
                      str(nodes), "--ranks-per-node", str(ranks_per_node), *flags,
                      "--json"])
    return found["rows"][0]["step_ms"]
