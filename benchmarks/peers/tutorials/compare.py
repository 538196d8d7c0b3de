#!/usr/bin/python3
"""Compares the losses that tutorials' programs print in PyTorch and in tandem: lines of all
ranks, to all printed digits. Both sides start from PyTorch's initial weights and read the
same order, without dropout and in float64.

usage: compare.py --data FOLDER [--tandem build/release/bin/tandem] [--limit N]
                  [--epochs N] [--keep FOLDER] [RECIPE ...] [-- FLAG ...]

FOLDER holds the four files of MNIST. Default of --epochs: 2, but 5 for ddp-linear. Flags
after -- go to tandem. Exits with 1 if a line differs. --keep FOLDER keeps the output of both
sides, and reads PyTorch's from there if it exists.

A float64 loss that is printed with all its digits has 16 or 17 of them, and the last ones
depend on the order of additions. The tutorials print float32 numbers in this way, so the
losses of both sides are rounded to float32 before they are compared.
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

# By recipe. `starts`: beginnings of lines with a loss. `all_digits`: the loss has no fixed
# number of digits.
Program = collections.namedtuple("Program", "file epochs starts all_digits")
PROGRAMS = {
    "single-process": Program("000_single.py", 2, ("epoch: ",), False),
    "ddp-linear": Program("002_ddp.py", 5, ("Rank: ",), True),
    "ddp-manual": Program("003_ddp_manual.py", 2, ("Train Epoch: ", "Test set: "), False),
}


def as_float32(text):
    return repr(struct.unpack("f", struct.pack("f", float(text)))[0])


def lines_of(output, program):
    """Sorted, since ranks print in any order, and a line names its place."""
    lines = [line for line in output.splitlines() if line.startswith(program.starts)]
    if program.all_digits:
        lines = [re.sub(r"[^ ]+$", lambda loss: as_float32(loss[0]), line)
                 for line in lines]
    return sorted(lines)


def largest_difference(ours, theirs, program):
    """The largest relative difference of printed losses."""
    def losses(output):
        lines = [line for line in output.splitlines() if line.startswith(program.starts)]
        return [float(re.search(r"oss: ([^ ,]+)", line)[1]) for line in sorted(lines)]

    return max(abs(a - b) / b for a, b in zip(losses(ours), losses(theirs)))


def run(command):
    # Debian's PyTorch 2.6 has no libuv, which it would use for its store.
    variables = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", USE_LIBUV="0")
    result = subprocess.run(command, env=variables, text=True, stdout=subprocess.PIPE,
                            check=False)
    if result.returncode:
        sys.exit(f"{' '.join(command)} ended with {result.returncode}")
    return result.stdout


def compare(name, args):
    """Compares a recipe; returns the number of lines that differ."""
    program = PROGRAMS[name]
    same = ["--data", args.data, "--epochs", str(args.epochs or program.epochs),
            "--limit", str(args.limit)]
    init = os.path.join(args.keep, name + ".pt")
    kept = pathlib.Path(args.keep, name + ".pytorch.txt")
    if not kept.exists():
        file = str(HERE / program.file)
        kept.write_text(run([sys.executable, file, "--save-init", init, *same]))
    theirs = kept.read_text()
    ours = run([args.tandem, "train", str(ROOT / "recipes" / (name + ".toml")), "--init",
                init, "--no-dropout", "--precision", "fp64", *same, *args.flags])
    pathlib.Path(args.keep, name + ".tandem.txt").write_text(ours)
    here, there = lines_of(ours, program), lines_of(theirs, program)
    differing = list((collections.Counter(there) - collections.Counter(here)).elements())
    extra = list((collections.Counter(here) - collections.Counter(there)).elements())
    for sign, lines in (("-", differing), ("+", extra)):
        for line in lines[:3]:
            print(f"{name}: {sign} {line}")
    wrong = max(len(differing), len(extra))
    print(f"{name}: {len(there)} lines of PyTorch, {len(here)} of tandem, {wrong} differ")
    if there and not wrong:
        print(f"{name}: largest relative difference of printed losses "
              f"{largest_difference(ours, theirs, program):.2g}")
    return wrong + (not there)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--tandem", default=str(ROOT / "build/release/bin/tandem"))
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--keep", default="")
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", default=list(PROGRAMS))
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:at])
    args.flags = words[at + 1:]
    unknown = set(args.recipes) - set(PROGRAMS)
    if unknown:
        parser.error(f"no recipe {', '.join(unknown)}; choose {', '.join(PROGRAMS)}")
    with tempfile.TemporaryDirectory(prefix="tandem-tutorials-") as folder:
        args.keep = args.keep or folder
        os.makedirs(args.keep, exist_ok=True)
        sys.exit(1 if sum(compare(name, args) for name in args.recipes) else 0)


if __name__ == "__main__":
    main()
