"""The programs of the five tutorials: the recipe and the PyTorch program of each, and the
lines that they print. There is a row for each run on the tutorials' pages."""
import collections
import os
import tomllib

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
PAGES = os.path.join(ROOT, "docs", "tutorials")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"]

# `epochs`: the tutorial's, or the recipe's if the tutorial has none; `ours_epochs` and
# `peer_epochs`: what each side runs by default. `line` matches the numbered lines; its
# groups, in the order of their names, are the place of a line. `keep`: record all of them.
# `head` and `tail`: beginnings of lines to show before and after them. `peer`: a program of
# benchmarks/peers/tutorials and its flags, or None. With several `hosts`, which are network
# namespaces, both sides run once on each, with the host's number after -nr.
Program = collections.namedtuple(
    "Program", "key recipe ranks epochs ours_epochs peer_epochs flags peer mpi line head tail keep "
    "hosts")

BATCHES = r"epoch: (?P<a>\d+) \[(?P<b>\d+)/"
EPOCHS = r"rank: (?P<b>\d+) -- epoch: (?P<a>\d+) --> "
RANKS = r"Rank: (?P<c>\d+), Epoch: (?P<a>\d+), Batch: (?P<b>\d+), "
SAMPLES = r"Train Epoch: (?P<a>\d+) \[(?P<b>\d+)/"
STEPS = r"Epoch \[(?P<a>\d+)/\d+\], Step \[(?P<b>\d+)/"
STARTED = ("Training started", r"\d+ data samples")
MET = ("MASTER_", "Starting init", "Finished init")
OURS = r"epoch (?P<a>\d+)/\d+ +step (?P<b>\d+)/"


def row(key, recipe=None, ranks=1, epochs=1, ours_epochs=None, peer_epochs=None, flags=(),
        peer=None, mpi=False, line=OURS, head=(), tail=("Finished training in",), keep=False,
        hosts=1):
    return Program(key, recipe or key, ranks, epochs, ours_epochs or epochs,
                   peer_epochs or epochs, list(flags), peer, mpi, line, head, tail, keep,
                   hosts)


def averaging(ranks):
    return row(f"local-sgd-mpi-{ranks}", "local-sgd-mpi", ranks, 20,
               peer_epochs=20 if ranks == 1 else 2, peer=["001_mpi.py"], mpi=True,
               line=EPOCHS, head=STARTED, tail=("--- Converged", "Total Time"), keep=True)


def hogwild(ranks):
    number = ["--nproc", str(ranks)]
    return row(f"hogwild-{ranks}", "hogwild", ranks, 20,
               peer_epochs=20 if ranks == 1 else 2, flags=number,
               peer=["001_hogwild.py", *number], line=EPOCHS, head=STARTED,
               tail=("--- Converged", "Time taken"), keep=True)


def manual(key, peer=None, ranks=2, ours_epochs=None):
    return row(key, ranks=ranks, epochs=14, ours_epochs=ours_epochs, peer_epochs=2, peer=peer,
               line=SAMPLES, head=MET, tail=("Test set",))


def nodes(key, recipe, peer, count=1, gpus=1):
    flags = ["-n", str(count), "-g", str(gpus)]
    if count == 1:
        flags += ["-nr", "0"]
    return row(key, recipe, count * gpus, 2, flags=flags, peer=[peer, *flags], line=STEPS,
               tail=("Training complete in",), hosts=count)


def nodes_gpus(count, gpus):
    return nodes(f"nodes-gpus-{count}x{gpus}", "nodes-gpus", "004_nodes_gpus.py",
                 count, gpus)


PROGRAMS = [
    row("single-process", peer=["000_single.py", "--as-written"], line=BATCHES),
    row("gloo-machines", ranks=2, peer=["000_gloo.py"], line=BATCHES),
    *(averaging(ranks) for ranks in range(1, 6)),
    row("local-sgd-mpi-logits", ranks=2, epochs=20, mpi=True, line=EPOCHS,
        head=STARTED, tail=("--- Converged", "Total Time"), keep=True),
    *(hogwild(ranks) for ranks in range(1, 6)),
    row("data-parallel-module", ranks=2, peer=["002_data_parallel.py"],
        head=("device:", "Number of GPUs")),
    row("ddp-linear", ranks=4, epochs=5, peer=["002_ddp.py", "--as-written"], line=RANKS),
    row("model-parallel", ranks=2, epochs=2),
    row("pipeline-1f1b", ranks=2, epochs=2),
    row("pipeline-gpipe", ranks=2, epochs=2),
    row("hybrid", ranks=4, epochs=2),
    row("parameter-server", ranks=3, epochs=5, line=RANKS),
    manual("single-net", ["003_single.py"], ranks=1),
    manual("ddp-manual", ["003_ddp_manual.py", "--as-written"]),
    manual("ddp-manual-flat", ours_epochs=2),
    manual("ddp-manual-overlap", ours_epochs=2),
    manual("ddp", ["003_ddp.py"]),
    row("batch-norm-buffers", ranks=2, epochs=2),
    row("sync-batch-norm", ranks=2, epochs=2),
    nodes("single-convnet", "single-convnet", "004_single.py"),
    nodes_gpus(1, 1),
    nodes_gpus(1, 2),
    nodes_gpus(2, 2),
    nodes_gpus(4, 1),
    row("amp-fp16", ranks=2, epochs=2, line=STEPS, tail=("Training complete in",)),
]
BY_KEY = {program.key: program for program in PROGRAMS}

# Programs without a data set: tandem's command, and PyTorch's.
EXAMPLES = {
    "launch": (["tandem", "launch", "--nproc-per-node", "2", "launch"], None),
    "spawn": (["spawn", "2"], ["002_spawn.py", "--nproc", "2"]),
    "look_at_gradients": (["look_at_gradients"], None),
}


def recipe_path(program):
    return os.path.join(ROOT, "recipes", program.recipe + ".toml")


def printed_by_tutorial(key):
    """The lines of a run that its tutorial shows; "" without any."""
    path = os.path.join(PAGES, key + ".txt")
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def tutorial_table(program):
    """The recipe's [tutorial] as a dictionary: its number and figures."""
    with open(recipe_path(program), "rb") as file:
        told = tomllib.load(file)["tutorial"]
    return {"number": told} if isinstance(told, str) else told


def figures_of_tutorial(program):
    """{seconds, accuracy, where} of the recipe's [tutorial]."""
    told = tutorial_table(program)
    found = {}
    if "seconds" in told:
        found["seconds"] = told["seconds"]
    if len(told.get("minutes", [])) >= program.ranks:
        found["seconds"] = 60 * told["minutes"][program.ranks - 1]
    if "test_accuracy" in told:
        found["accuracy"], found["where"] = told["test_accuracy"], "test"
    if len(told.get("train_accuracy", [])) >= program.ranks:
        found["accuracy"], found["where"] = told["train_accuracy"][program.ranks - 1], "train"
    return found
