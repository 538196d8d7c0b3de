"""ssh.sh, with an ssh server on 127.0.0.1 as three hosts.

python3 test_ssh.py BIN [UNITTEST ARGUMENTS]: the folder with tandem.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from runs import ENVIRONMENT, RUN, SCRIPTS, free_port, make_folder, start

SKIPPED = 77
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
folder = None


def setUpModule():
    global folder
    folder = make_folder()


def obstacle():
    """The reason why no server can run here, "" if a server can."""
    # scripts/setup does not install the server, because the package starts it.
    if not os.path.exists(SSHD) or shutil.which("ssh") is None:
        return "no sshd; apt-get install openssh-server"
    if os.geteuid() != 0:
        return "sshd starts sessions, which needs root"
    return ""


def wait_for_server(port):
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


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
        wait_for_server(values["port"])
        yield {"PATH": f"{commands}:{ENVIRONMENT['PATH']}"}
    finally:
        server.terminate()
        server.wait()


class Ssh(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.variables = cls.enterClassContext(ssh_server())
        token = folder / "token"
        token.write_text("secret of these hosts\n")
        token.chmod(0o600)
        cls.variables |= {"TANDEM_TOKEN_FILE": str(token)}

    def start(self, run, flags):
        hosts = ",".join(["127.0.0.1"] * 3)
        return start([SCRIPTS / "ssh.sh", hosts, *flags, "--out", run,
                      "--timeout-seconds", "60"],
                     self.variables | {"MASTER_PORT": free_port()})

    def test_starts_hosts_of_one_run(self):
        run = folder / "a name of words"
        with self.start(run, RUN) as script:
            printed = script.communicate(timeout=240)[0]
        self.assertEqual(script.returncode, 0, printed)
        self.assertEqual(json.loads((run / "summary.json").read_text())["world_size"], 3)

    def test_its_end_saves_and_stops_the_run(self):
        run = folder / "stopped"
        # The first epoch does not end, so only a stop saves a checkpoint.
        flags = ["--model", "convnet", "--data", "digits", "--batch-size", "1",
                 "--log-every", "1"]
        with self.start(run, flags) as script:
            while not (run / "metrics.jsonl").exists() and script.poll() is None:
                time.sleep(0.1)
            script.send_signal(signal.SIGTERM)
            printed = script.communicate(timeout=240)[0]
        self.assertNotEqual(script.returncode, 0, printed)
        until = time.monotonic() + 60
        while subprocess.run(["pgrep", "-f", run], stdout=subprocess.DEVNULL).returncode == 0:
            self.assertLess(time.monotonic(), until, printed)
            time.sleep(0.1)
        self.assertTrue(list(run.glob("checkpoints/*/training.safetensors")), printed)


if __name__ == "__main__":
    if obstacle():
        print("skipped: " + obstacle())
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
