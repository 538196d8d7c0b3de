"""Starts programs with tandem in their PATH."""

import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv[1]).resolve()
TANDEM = str(BIN / "tandem")
# The scripts of docs/guide/schedulers.md.
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "examples/schedulers"
RUN = ["--model", "convnet", "--data", "digits", "--limit", "960", "--eval-batch-size", "100"]
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("PET_", "SLURM_", "OMPI_"))} | {
    "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
    # Open MPI 5
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none"}


def make_folder():
    """Makes a folder, which is removed after the tests of the module."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-launchers-"))
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    return folder


def start(words, variables):
    return subprocess.Popen([str(word) for word in words], env=ENVIRONMENT | variables,
                            text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def free_port():
    """A free port below the ports that the kernel gives to connections, such as ssh's."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return str(port)
    raise RuntimeError("no free port from 20000 to 31999")
