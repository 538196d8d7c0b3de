"""One rank: whole steps, their primitives, optimizers, and the loader."""
import os

from measure import Failed, Side, run_json, run_sides

NEWEST = {"newest fp32": [], "newest bf16": ["--precision", "bf16"],
          "newest compiled fp32": ["--compile"],
          "newest compiled bf16": ["--precision", "bf16", "--compile"]}


def json_side(command, values, needs=None):
    """A side whose command prints JSON. `values` maps names of values to keys of the JSON."""
    def measure():
        found = run_json(command)
        absent = [key for key in values.values() if key not in found]
        if absent:
            raise Failed(f"its output has no {absent[0]}")
        return {name: found[key] for name, key in values.items()}
    return Side(command, measure, needs)


def our_step(settings, executor, precision):
    return [settings.program, "bench", "step", "--model", "net", "--data", settings.data,
            "--executor", executor, "--precision", precision, "--threads", "1",
            "--prefetched", *step_count(settings), "--json"]


def step_count(settings):
    return ["--steps", str(settings.size(40, 8)), "--warmup", str(settings.size(8, 3))]


def our_step_sides(settings):
    return {f"ours {precision}": json_side(our_step(settings, "onednn", precision),
                                           {f"ours {precision}": "ms_per_step"})
            for precision in ("fp32", "bf16")}


def their_step(settings, python, name, flags):
    return json_side([python, *settings.peer("step.py"), "--data", settings.data,
                      "--threads", "1", *step_count(settings), *flags],
                     {name: "ms_per_step"})


def step(settings, log):
    """Training steps of net, one rank, one thread."""
    theirs = {f"PyTorch {precision}": their_step(
        settings, settings.python, f"PyTorch {precision}", ["--precision", precision])
        for precision in ("fp32", "bf16")}
    eager = json_side(our_step(settings, "eager", "fp32"), {"ours eager": "ms_per_step"})
    return run_sides(log, "step", settings.rounds(9),
                     {**theirs, **our_step_sides(settings), "ours eager": eager})


def newest(settings, log):
    """Training steps of net, against the PyTorch of another Python (--newest)."""
    if not settings.newest:
        raise Failed("skipped: set --newest to its Python")
    theirs = {name: their_step(settings, settings.newest, name, flags)
              for name, flags in NEWEST.items()}
    return run_sides(log, "newest", settings.rounds(5),
                     {**theirs, **our_step_sides(settings)})


def primitives(settings, log):
    """A step without its optimizer, and oneDNN's primitives, on the same core."""
    core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    sides = {}
    for precision in ("fp32", "bf16"):
        ours, bare = f"ours {precision} without optimizer", f"primitives {precision}"
        sides[ours] = json_side([*core, *our_step(settings, "onednn", precision)],
                                {ours: "ms_before_update"})
        program = settings.built("bench_primitives")
        sides[bare] = json_side(
            [*core, program, "--precision", precision, "--repeats",
             str(settings.size(40, 5))], {bare: "ms"}, needs=program)
    return run_sides(log, "primitives", settings.rounds(7), sides)


def optimizer(settings, log):
    """One pass of each optimizer over net's arena, and a memcpy of the same size."""
    command = [settings.program, "bench", "optimizer", "--json"]

    def measure():
        values = {}
        for found in run_json(command)["results"]:
            values[found["optimizer"]] = found["ms"]
            values[found["optimizer"] + " memcpy"] = found["memcpy_ms"]
        return values

    return run_sides(log, "optimizer", settings.rounds(5),
                     {"optimizer": Side(command, measure)})


def loader(settings, log):
    """Shuffled, normalised batches of 64, one thread, no training."""
    ours = [settings.program, "bench", "loader", "--data", settings.data, "--json"]
    theirs = [settings.python, *settings.peer("loader.py"), "--data", settings.data,
              "--epochs", "1", "--limit", str(settings.size(20000, 5000))]
    return run_sides(log, "loader", settings.rounds(5), {
        "ours": json_side(ours, {"ours": "samples_per_second"}),
        "torchvision": json_side(theirs, {"torchvision": "samples_per_second"})})
