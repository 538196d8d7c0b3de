"""One training run under several launchers, with the same bits.

python3 test_launchers.py BIN [UNITTEST ARGUMENTS]: the folder with tandem. tests/slurm has the
same test for srun, and tests/program/ranks/torchrun_test.cpp for torchrun.
"""

import json
import shutil
import sys
import unittest

from runs import RUN, SCRIPTS, TANDEM, free_port, make_folder, start

folder = None


def setUpModule():
    global folder
    folder = make_folder()


class Launchers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = cls.sha256_of("reference", [[TANDEM, "train", "--nproc", "3", *RUN]])

    @staticmethod
    def sha256_of(name, commands, variables=lambda number: {}):
        """Runs commands at the same time, and returns the hash of the final parameters."""
        run = folder / name
        started = [start([*words, "--out", run], variables(number))
                   for number, words in enumerate(commands)]
        printed = [process.communicate(timeout=240)[0] for process in started]
        if any(process.returncode for process in started):
            raise RuntimeError("\n".join(printed))
        summary = json.loads((run / "summary.json").read_text())
        assert summary["world_size"] == 3, summary
        return summary["parameters_sha256"]

    def test_tandem_launch(self):
        command = [TANDEM, "launch", "--nproc-per-node", "3", TANDEM, "train", *RUN]
        self.assertEqual(self.sha256_of("launch", [command]), self.expected)

    def test_variables_of_the_environment(self):
        port = free_port()
        self.assertEqual(
            self.sha256_of("variables", [[TANDEM, "train", *RUN]] * 3, lambda number: {
                "RANK": str(number), "WORLD_SIZE": "3",
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}),
            self.expected)

    @unittest.skipIf(shutil.which("mpirun") is None, "no mpirun; scripts/setup")
    def test_mpirun(self):
        command = ["mpirun", "-np", "3", TANDEM, "train", *RUN]
        self.assertEqual(self.sha256_of("mpirun", [command]), self.expected)

    @unittest.skipIf(shutil.which("mpirun") is None, "no mpirun; scripts/setup")
    def test_mpirun_with_a_host_file(self):
        hosts = folder / "hosts"
        hosts.write_text("localhost slots=3\n")
        command = [SCRIPTS / "mpirun.sh", hosts, *RUN]
        self.assertEqual(self.sha256_of("hostfile", [command]), self.expected)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
