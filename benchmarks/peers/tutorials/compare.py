#!/usr/bin/python3
"""Runs documents' programs in PyTorch and their recipes in tandem, and compares every
line with a loss: of all ranks, to all printed digits. Both start from PyTorch's initial
weights and read the same order, without dropout and in float64.

usage: compare.py --data FOLDER [--tandem build/release/bin/tandem] [--limit N]
                  [--epochs N] [--keep FOLDER] [DOCUMENT ...] [-- FLAG ...]

FOLDER holds MNIST's four files. Without --epochs: 2, and all 5 of ddp-linear. Flags after --
go to tandem. Exits 1 when a line differs. --keep FOLDER
keeps what both sides print, and takes PyTorch's side from there when it is there.

A float64 loss that is printed with all its digits has 16 or 17 of them, of which the last
ones depend on the order of additions. The documents' are float32 numbers printed so: both
sides' are rounded to one before they are compared.
"""
import argparse
import collections
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# A document's lines start so; in all_digits ones the loss has no fixed number of digits.
Document = collections.namedtuple("Document", "epochs starts all_digits")
DOCUMENTS = {
    "single-process": Document(2, ("epoch: ",), False),
    "ddp-linear": Document(5, ("Rank: ",), True),
    "ddp-manual": Document(2, ("Train Epoch: ", "Test set: "), False),
}


def as_float32(text):
    return repr(struct.unpack("f", struct.pack("f", float(text)))[0])


def lines_of(output, document):
    """Ranks print in any order among each other; a line names its place."""
    lines = [line for line in output.splitlines() if line.startswith(document.starts)]
    if document.all_digits:
        lines = [re.sub(r"[^ ]+$", lambda loss: as_float32(loss[0]), line)
                 for line in lines]
    return sorted(lines)


def largest_difference(ours, theirs, document):
    """Relative, of the losses as they were printed."""
    def losses(output):
        lines = [line for line in output.splitlines() if line.startswith(document.starts)]
        return [float(re.search(r"oss: ([^ ,]+)", line)[1]) for line in sorted(lines)]

    return max(abs(a - b) / b for a, b in zip(losses(ours), losses(theirs)))


def run(command):
    variables = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    result = subprocess.run(command, env=variables, text=True, stdout=subprocess.PIPE,
                            check=False)
    if result.returncode:
        sys.exit(f"{' '.join(command)} ended with {result.returncode}")
    return result.stdout


def compare(name, args):
    """The number of lines that differ."""
    document = DOCUMENTS[name]
    same = ["--data", args.data, "--epochs", str(args.epochs or document.epochs),
            "--limit", str(args.limit)]
    init = os.path.join(args.keep, name + ".pt")
    kept = pathlib.Path(args.keep, name + ".pytorch.txt")
    if not kept.exists():
        program = HERE / (name.replace("-", "_") + ".py")
        kept.write_text(run([sys.executable, str(program), "--save-init", init, *same]))
    theirs = kept.read_text()
    ours = run([args.tandem, "train", str(ROOT / "recipes" / (name + ".toml")), "--init",
                init, "--no-dropout", "--precision", "fp64", *same, *args.flags])
    pathlib.Path(args.keep, name + ".tandem.txt").write_text(ours)
    here, there = lines_of(ours, document), lines_of(theirs, document)
    differing = list((collections.Counter(there) - collections.Counter(here)).elements())
    extra = list((collections.Counter(here) - collections.Counter(there)).elements())
    for sign, lines in (("-", differing), ("+", extra)):
        for line in lines[:3]:
            print(f"{name}: {sign} {line}")
    wrong = max(len(differing), len(extra))
    print(f"{name}: {len(there)} lines of PyTorch, {len(here)} of tandem, {wrong} differ")
    if there and not wrong:
        print(f"{name}: largest relative difference of printed losses "
              f"{largest_difference(ours, theirs, document):.2g}")
    return wrong + (not there)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--tandem", default=str(ROOT / "build/release/bin/tandem"))
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--keep", default="")
    parser.add_argument("documents", nargs="*", metavar="DOCUMENT",
                        default=list(DOCUMENTS))
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:at])
    args.flags = words[at + 1:]
    unknown = set(args.documents) - set(DOCUMENTS)
    if unknown:
        parser.error(f"no document {', '.join(unknown)}; choose {', '.join(DOCUMENTS)}")
    with tempfile.TemporaryDirectory(prefix="tandem-documents-") as folder:
        args.keep = args.keep or folder
        os.makedirs(args.keep, exist_ok=True)
        sys.exit(1 if sum(compare(name, args) for name in args.documents) else 0)


if __name__ == "__main__":
    main()
