"""Runs the commands of the manifests' pods as processes of this host, with Kubeflow's variables.

python3 test_pods.py BIN [UNITTEST ARGUMENTS]: the folder with tandem.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from manifests import ROOT, manifest

BIN = pathlib.Path(sys.argv[1]).resolve()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Pods(unittest.TestCase):
    """Runs a process for each pod. Host 0 listens on 127.0.0.1."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-pods-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "token").write_text("secret of these pods\n")
        self.port = str(free_port())

    def start(self, container, args, number, variables):
        home = self.folder / f"home{number}"
        home.mkdir()
        words = [*container["command"], *args, "--limit", "640"]
        for there, here in (("/etc/tandem", self.folder), ("/runs", self.folder)):
            words = [word.replace(there, str(here)) for word in words]
        # Only an installed tandem finds recipes by name.
        recipe = words.index("quickstart")
        words[recipe] = str(ROOT / "recipes/quickstart.toml")
        environment = {"HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}",
                       "TMPDIR": str(home), "OMP_NUM_THREADS": "1", **variables}
        return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def expect_four_ranks(self, pods):
        printed = [pod.communicate(timeout=120)[0] for pod in pods]
        self.assertEqual([pod.returncode for pod in pods], [0] * len(pods), printed)
        summary = json.loads((self.folder / "quickstart/summary.json").read_text())
        self.assertEqual(summary["world_size"], 4)

    def test_of_a_trainjob_are_hosts_of_one_run(self):
        runtime = manifest("runtime")["spec"]["template"]["spec"]["replicatedJobs"][0]
        container = runtime["template"]["spec"]["template"]["spec"]["containers"][0]
        trainer = manifest("trainjob")["spec"]["trainer"]
        self.expect_four_ranks([
            self.start(container, trainer["args"], number, {
                "PET_NNODES": str(trainer["numNodes"]),
                "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                "PET_NODE_RANK": str(number),
                "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": self.port})
            for number in range(trainer["numNodes"])])

    def test_of_a_pytorchjob_are_hosts_of_one_run(self):
        spec = manifest("pytorchjob")["spec"]
        replicas = [spec["pytorchReplicaSpecs"][name] for name in ("Master", "Worker")]
        pods = sum(replica["replicas"] for replica in replicas)
        self.expect_four_ranks([
            self.start(container, container["args"], number, {
                "RANK": str(number), "PET_NODE_RANK": str(number),
                "WORLD_SIZE": str(pods * int(spec["nprocPerNode"])),
                "PET_NNODES": str(pods), "PET_NPROC_PER_NODE": spec["nprocPerNode"],
                "MASTER_ADDR": "127.0.0.1", "PET_MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": self.port, "PET_MASTER_PORT": self.port})
            for number, container in enumerate(
                replica["template"]["spec"]["containers"][0] for replica in replicas)])

    @unittest.skipIf(shutil.which("mpirun") is None, "there is no mpirun; scripts/setup")
    def test_of_an_mpijob_are_hosts_of_mpirun(self):
        spec = manifest("mpijob")["spec"]
        container = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        slots = spec["slotsPerWorker"] * spec["mpiReplicaSpecs"]["Worker"]["replicas"]
        (self.folder / "hosts").write_text(f"localhost slots={slots}\n")
        self.expect_four_ranks([self.start(container, container["args"], 0, {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_orte_default_hostfile": str(self.folder / "hosts"),
            # Open MPI 5
            "PRTE_MCA_prte_default_hostfile": str(self.folder / "hosts"),
            "PRTE_MCA_hwloc_default_binding_policy": "none"})])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
