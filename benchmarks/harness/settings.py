"""What the command line of scripts/bench asks for."""
import os

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers")


class Settings:
    """`program`: tandem's; `data`: a folder of MNIST's IDX files; `pairs`: rounds of
    each line, 0 for its own number; `newest`: a Python with a newer torch, or ""."""

    python = "/usr/bin/python3"

    def __init__(self, program, data, pairs=0, quick=False, newest=""):
        self.program = program
        self.data = data
        self.pairs = pairs
        self.quick = quick
        self.newest = newest

    def size(self, full, quick):
        return quick if self.quick else full

    def rounds(self, full):
        return self.pairs or (2 if self.quick else full)

    def peer(self, name):
        """Arguments after the Python that runs it."""
        return [os.path.relpath(os.path.join(PEERS, name))]

    def built(self, name):
        """A program of benchmarks/, beside tandem; it may be missing."""
        return os.path.join(os.path.dirname(self.program), name)
