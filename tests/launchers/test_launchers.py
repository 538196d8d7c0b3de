"""One training run under several launchers, with the same bits.

python3 test_launchers.py BIN [UNITTEST ARGUMENTS]: the folder with tandem. mpirun.sh and
ssh.sh are those of docs/guide/schedulers.md. tests/slurm has the same test for srun.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv[1]).resolve()
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "examples/schedulers"
CACHE = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
TORCHRUN = os.environ.get("TANDEM_TEST_TORCHRUN", f"{CACHE}/tandem/torchrun/bin/torchrun")
TANDEM = str(BIN / "tandem")
RUN = ["--model", "convnet", "--data", "digits", "--limit", "960", "--eval-batch-size", "100"]
folder = None
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("PET_", "SLURM_", "OMPI_"))} | {
    "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


def setUpModule():
    global folder
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-launchers-"))
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)


def start(words, variables):
    return subprocess.Popen([str(word) for word in words], env=ENVIRONMENT | variables,
                            cwd=folder, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


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

    @unittest.skipUnless(os.path.exists(TORCHRUN), "no torchrun; scripts/setup --torchrun")
    def test_torchrun(self):
        command = [TORCHRUN, "--standalone", "--nproc-per-node=3", "--no-python",
                   TANDEM, "train", *RUN]
        self.assertEqual(self.sha256_of("torchrun", [command]), self.expected)

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


SSHD = "/usr/sbin/sshd"
SSHD_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
SetEnv PATH={path} OMP_NUM_THREADS=1
"""
SSH_CONFIG = """
Host *
  Port {port}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile {folder}/known
  LogLevel ERROR
"""


def obstacle_to_ssh():
    if not os.path.exists(SSHD) or shutil.which("ssh") is None:
        # scripts/setup does not install it, because the package starts a server.
        return "no sshd; apt-get install openssh-server"
    if os.geteuid() != 0:
        return "sshd starts sessions, which needs root"
    return ""


@contextlib.contextmanager
def ssh_server():
    """Runs sshd on 127.0.0.1, with new keys, and a command ssh for this server."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name],
                       check=True)
    values = {"port": free_port(), "folder": folder, "path": ENVIRONMENT["PATH"]}
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(**values))
    (folder / "ssh_config").write_text(SSH_CONFIG.format(**values))
    commands = folder / "commands"
    commands.mkdir()
    ssh = commands / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {shutil.which('ssh')} -F {folder}/ssh_config \"$@\"\n")
    ssh.chmod(0o755)
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"],
                              stderr=subprocess.DEVNULL)
    try:
        yield {"PATH": f"{commands}:{ENVIRONMENT['PATH']}"}
    finally:
        server.terminate()
        server.wait()


@unittest.skipIf(obstacle_to_ssh(), obstacle_to_ssh())
class Ssh(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.variables = cls.enterClassContext(ssh_server())
        token = folder / "token"
        token.write_text("secret of these hosts\n")
        token.chmod(0o600)
        cls.variables |= {"TANDEM_TOKEN_FILE": str(token)}

    def start(self, run, *flags):
        hosts = ",".join(["127.0.0.1"] * 3)
        return start([SCRIPTS / "ssh.sh", hosts, *RUN, "--out", run, *flags],
                     self.variables | {"MASTER_PORT": free_port()})

    def test_starts_hosts_of_one_run(self):
        run = folder / "three words of"
        with self.start(run) as script:
            printed = script.communicate(timeout=240)[0]
        self.assertEqual(script.returncode, 0, printed)
        self.assertEqual(json.loads((run / "summary.json").read_text())["world_size"], 3)

    def test_its_end_saves_and_stops_the_run(self):
        run = folder / "stopped"
        with self.start(run, "--epochs", "1000", "--log-every", "1") as script:
            while not (run / "metrics.jsonl").exists() and script.poll() is None:
                time.sleep(0.1)
            script.send_signal(signal.SIGTERM)
            printed = script.communicate(timeout=240)[0]
        self.assertNotEqual(script.returncode, 0, printed)
        until = time.monotonic() + 60
        while not any((run / "checkpoints").glob("*/training.safetensors")):
            self.assertLess(time.monotonic(), until, printed)
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
