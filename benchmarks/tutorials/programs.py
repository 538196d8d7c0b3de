"""The programs of the five documents: the recipe and the PyTorch program of each, and the
lines that they print. A row per run that docs/documents.md shows."""
import collections
import os
import tomllib

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
PAGE = os.path.join(ROOT, "docs", "documents")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"]

# `epochs` are the document's, or the recipe's where it has none; the others say how many
# each side makes by default. `line` matches the numbered lines, its groups in the order
# of their names are a line's place; `keep` says to record all of them. `head` and `tail`
# are beginnings of lines to show before and behind them. `peer` is a program of
# benchmarks/peers/documents and its flags, None where there is none. On several `hosts`,
# network namespaces, both sides run once on each, with its number behind -nr.
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
    return row(f"001-mpi-averaging-{ranks}", "001-mpi-averaging", ranks, 20,
               peer_epochs=20 if ranks == 1 else 2, peer=["001_mpi.py"], mpi=True,
               line=EPOCHS, head=STARTED, tail=("--- Converged", "Total Time"), keep=True)


def hogwild(ranks):
    number = ["--nproc", str(ranks)]
    return row(f"001-hogwild-{ranks}", "001-hogwild", ranks, 20,
               peer_epochs=20 if ranks == 1 else 2, flags=number,
               peer=["001_hogwild.py", *number], line=EPOCHS, head=STARTED,
               tail=("--- Converged", "Time taken"), keep=True)


def by_hand(key, peer=None, ranks=2, ours_epochs=None):
    return row(key, ranks=ranks, epochs=14, ours_epochs=ours_epochs, peer_epochs=2, peer=peer,
               line=SAMPLES, head=MET, tail=("Test set",))


def nodes(key, recipe, peer, count=1, gpus=1):
    flags = ["-n", str(count), "-g", str(gpus)]
    if count == 1:
        flags += ["-nr", "0"]
    return row(key, recipe, count * gpus, 2, flags=flags, peer=[peer, *flags], line=STEPS,
               tail=("Training complete in",), hosts=count)


def nodes_gpus(count, gpus):
    return nodes(f"004-nodes-gpus-{count}x{gpus}", "004-nodes-gpus", "004_nodes_gpus.py",
                 count, gpus)


PROGRAMS = [
    row("000-single", peer=["000_single.py", "--as-written"], line=BATCHES),
    row("000-gloo", ranks=2, peer=["000_gloo.py"], line=BATCHES),
    *(averaging(ranks) for ranks in range(1, 6)),
    row("001-mpi-averaging-logits", ranks=2, epochs=20, mpi=True, line=EPOCHS,
        head=STARTED, tail=("--- Converged", "Total Time"), keep=True),
    *(hogwild(ranks) for ranks in range(1, 6)),
    row("002-data-parallel", ranks=2, peer=["002_data_parallel.py"],
        head=("device:", "Number of GPUs")),
    row("002-ddp", ranks=4, epochs=5, peer=["002_ddp.py", "--as-written"], line=RANKS),
    row("002-model-parallel", ranks=2, epochs=2),
    row("002-pipeline", ranks=2, epochs=2),
    row("002-pipeline-gpipe", ranks=2, epochs=2),
    row("002-hybrid", ranks=4, epochs=2),
    row("002-rpc", ranks=3, epochs=5, line=RANKS),
    by_hand("003-single", ["003_single.py"], ranks=1),
    by_hand("003-own-ddp", ["003_own_ddp.py", "--as-written"]),
    by_hand("003-own-ddp-flat", ours_epochs=2),
    by_hand("003-own-ddp-overlap", ours_epochs=2),
    by_hand("003-ddp", ["003_ddp.py"]),
    row("003-buffers", ranks=2, epochs=2),
    row("003-buffers-sync", ranks=2, epochs=2),
    nodes("004-single", "004-single", "004_single.py"),
    nodes_gpus(1, 1),
    nodes_gpus(1, 2),
    nodes_gpus(2, 2),
    nodes_gpus(4, 1),
    row("004-amp", ranks=2, epochs=2, line=STEPS, tail=("Training complete in",)),
]
BY_KEY = {program.key: program for program in PROGRAMS}

# Programs without a data set: what is run here, and in PyTorch.
EXAMPLES = {
    "launch": (["tandem", "launch", "--nproc-per-node", "2", "launch"], None),
    "spawn": (["spawn", "2"], ["002_spawn.py", "--nproc", "2"]),
    "look_at_gradients": (["look_at_gradients"], None),
}


def recipe_path(program):
    return os.path.join(ROOT, "recipes", program.recipe + ".toml")


def printed_by_document(key):
    """The lines that a document shows of a run, or none."""
    path = os.path.join(PAGE, key + ".txt")
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def figures_of_document(program):
    """{seconds, accuracy, where}, what the recipe's [document] has of it."""
    with open(recipe_path(program), "rb") as file:
        told = tomllib.load(file).get("document", {})
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
