"""The settings of scripts/bench."""
import os

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers")


class Settings:
    """`program`: path of tandem; `data`: folder of MNIST's IDX files; `pairs`: rounds of each
    line, 0 for the line's default; `newest`: Python with a newer torch, or ""."""

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
        """The arguments of Python that run a peer."""
        return [os.path.relpath(os.path.join(PEERS, name))]

    def built(self, name):
        """Path of a program of benchmarks/, next to tandem. It may be missing."""
        return os.path.join(os.path.dirname(self.program), name)
