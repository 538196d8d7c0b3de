"""A SLURM of one node: munged, slurmctld and slurmd with all their files in one folder."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

DAEMONS = ("munged", "slurmctld", "slurmd")
# Debian's folders of daemons, which may not be in the PATH.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

CONFIG = """
ClusterName=tandem
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
KillWait=20
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def obstacle():
    """The reason why no cluster can run here, "" if one can."""
    programs = (*DAEMONS, "srun", "sbatch", "salloc", "scancel", "scontrol")
    missing = [name for name in programs if shutil.which(name, path=PATH) is None]
    if missing:
        return f"there is no {missing[0]}; install slurm-wlm and munge (scripts/setup)"
    if os.geteuid() != 0:
        return "SLURM's daemons start jobs, which needs root"
    if not os.path.ismount("/sys/fs/cgroup"):
        return "slurmd needs /sys/fs/cgroup, which is not mounted"
    return ""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """Starts the daemons; stop() stops them, also after a failure."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.daemons = []
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o700)
        config = self.folder / "slurm.conf"
        host = socket.gethostname().split(".")[0]
        config.write_text(CONFIG.format(
            host=host, folder=self.folder, ports=free_ports(2)))
        self.environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith(("SLURM", "PET_"))}
        # A rank under tandem launch has one thread too, so the bits are the same.
        self.environment |= {
            "SLURM_CONF": str(config), "PATH": PATH, "OMP_NUM_THREADS": "1"}

    def start(self):
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o600)
        self._start("munged", "--foreground", "--force", *(
            f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")),
            f"--socket={munge / 'socket'}")
        self._wait("munged", (munge / "socket").exists)
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        self._wait("node", lambda: "idle" in self.run("sinfo", "-h", "-o", "%t"))

    def _start(self, name, *flags):
        with open(self.folder / f"{name}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(
                [name, *flags], env=self.environment, stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True))

    def _wait(self, what, ready):
        wait_until(lambda: ready() or self._dead(), 30, f"{what} is ready")
        if self._dead():
            logs = [log.read_text(errors="replace")[-2000:]
                    for log in sorted(self.folder.glob("*.out"))]
            raise RuntimeError(f"{self._dead()} has ended:\n" + "\n".join(logs))

    def _dead(self):
        return [one.args[0] for one in self.daemons if one.poll() is not None]

    def stop(self):
        if any(one.args[0] == "slurmctld" for one in self.daemons):
            self.run("scancel", "--user=root")
            try:
                wait_until(lambda: not self.run("squeue", "-h"), 30, "all jobs ended")
            except TimeoutError:
                pass
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def start_program(self, *command, variables=None):
        return subprocess.Popen(
            [str(word) for word in command], cwd=self.folder, text=True,
            env=self.environment | (variables or {}), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *command, variables=None, seconds=60):
        """Returns the output of a program, with standard error."""
        with self.start_program(*command, variables=variables) as program:
            try:
                return program.communicate(timeout=seconds)[0]
            finally:
                program.kill()

    def submit(self, script, *flags):
        """Submits the text of a batch script to SLURM and returns the number of its job."""
        path = self.folder / "script.sh"
        path.write_text("#!/bin/sh\n" + script)
        return self.submit_file(path, flags)

    def submit_file(self, path, flags, arguments=(), variables=None):
        printed = self.run("sbatch", "--parsable", *flags, path, *arguments,
                           variables=variables)
        if not printed.strip().isdigit():
            raise RuntimeError(f"sbatch: {printed}")
        return printed.strip()

    def state(self, job):
        return self.run("squeue", "-h", "-j", job, "-t", "all", "-o", "%T").strip()

    def wait_for(self, job, seconds=60):
        """Waits until a job has ended in SLURM."""
        going_on = {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"}
        wait_until(
            lambda: not going_on.intersection(
                self.run("squeue", "-h", "-j", job, "-t", "all", "-o", "%T").split()),
            seconds, f"job {job} has ended")


def wait_until(ready, seconds, what):
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.1)
