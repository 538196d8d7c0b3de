"""Runs under a real SLURM of one node (cluster.py).

python3 test_slurm.py BIN [UNITTEST ARGUMENTS]: the folder with tandem and the examples.
"""

import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from cluster import PATH, Cluster, free_ports, obstacle, wait_until

SKIPPED = 77
BIN = pathlib.Path(sys.argv[1]).resolve()
# The batch scripts of docs/guide/schedulers.md.
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "examples/schedulers/slurm"
SHORT_FLAGS = ["--model", "simplenet", "--data", "digits", "--eval-batch-size", "100",
               "--limit", "256"]
SHORT = [BIN / "tandem", "train", *SHORT_FLAGS]
# Its steps take long enough to be stopped in the middle.
LONG_FLAGS = ["--model", "convnet", "--limit", "1000", "--epochs", "3", "--batch-size", "3",
              "--log-every", "5", "--eval-batch-size", "100"]
LONG = [BIN / "tandem", "train", *LONG_FLAGS]
cluster = None
# A job with a time limit. SLURM checks time limits every 30 s, so the other tests run next
# to this job.
limited = None


def setUpModule():
    global cluster, limited
    # The path of a socket is short, so not in $TMPDIR.
    folder = tempfile.mkdtemp(prefix="tandem-slurm-", dir="/tmp")
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    cluster = Cluster(folder)
    unittest.addModuleCleanup(cluster.stop)
    cluster.start()
    token = cluster.folder / "token"
    token.write_text("secret of this cluster\n")
    token.chmod(0o600)
    limited = submit_example(
        "train.sbatch", ["--model", "convnet", "--epochs", "1000", "--log-every", "5",
                         "--out", "limited"],
        "--no-requeue", "--time=1", "--signal=USR1@50", "-o", "limited.out")


def submit_example(name, arguments, *flags):
    """Submits a script of SCRIPTS for two tasks on this host."""
    return cluster.submit_file(
        SCRIPTS / name, ["-N", "1", "--ntasks-per-node=2", "--cpus-per-task=1", *flags],
        arguments, {"HOME": str(cluster.folder), "PATH": f"{BIN}:{PATH}"})


def last_step(run):
    """The step of the newest line of metrics.jsonl, 0 without lines."""
    return max([json.loads(line)["step"] for line in read(f"{run}/metrics.jsonl").splitlines()],
               default=0)


def wait_for_step_after(step, run):
    wait_until(lambda: last_step(run) > step, 60, f"{run} has made step {step + 1}")


def words(command):
    return " ".join(str(word) for word in command)


def sha256_of(run):
    summary = json.loads((cluster.folder / run / "summary.json").read_text())
    return summary["parameters_sha256"]


def weights_in(text):
    return set(re.findall("weights ([0-9a-f]{64})", text))


def read(name):
    path = cluster.folder / name
    return path.read_text() if path.exists() else ""


class Slurm(unittest.TestCase):
    def test_tasks_of_srun_are_ranks_of_one_run(self):
        self.assertIn("2 ranks over shm", cluster.run("srun", "-n", "2", *SHORT))

    def test_srun_in_salloc_starts_ranks_too(self):
        printed = cluster.run("salloc", "-n", "2", "srun", *SHORT)
        self.assertIn("2 ranks over shm", printed)
        self.assertNotIn("1 rank, ", printed)

    def test_a_batch_script_is_not_a_rank(self):
        job = cluster.submit(words([*SHORT, "--nproc", "2"]), "-n", "2", "-o", "shell.out")
        cluster.wait_for(job)
        self.assertIn("2 ranks over shm", read("shell.out"))

    def test_steps_that_overlap_train_apart(self):
        loop = BIN / "own_loop"
        job = cluster.submit("".join(
            f"srun -n 2 --overlap {loop} {epochs} 2000 > step{epochs}.out 2>&1 &\n"
            for epochs in "12") + "wait\n", "-n", "4", "-o", "steps.out")
        cluster.wait_for(job)
        weights = {}
        for epochs in "12":
            text = read(f"step{epochs}.out")
            ranks = re.findall(rf"rank (.)  epoch {epochs} ", text)
            self.assertEqual(sorted(ranks), ["0", "1"], text)
            weights[epochs] = weights_in(text)
            self.assertEqual(len(weights[epochs]), 1, text)
        self.assertNotEqual(weights["1"], weights["2"])

    def test_steps_with_one_port_reject_each_other_by_name(self):
        loop = BIN / "own_loop"
        # Rank 1 of the second step connects to rank 0 of the first.
        job = cluster.submit(
            f"export MASTER_PORT={free_ports(1)[0]}\n"
            f"late='[ $SLURM_PROCID = 1 ] || sleep 2; exec {loop} 2 2000'\n"
            f"early='[ $SLURM_PROCID = 0 ] || sleep 3; exec {loop} 1 2000'\n"
            "srun -K -n 2 --overlap sh -c \"$early\" > first.out 2>&1 &\n"
            "srun -K -n 2 --overlap sh -c \"$late\" > second.out 2>&1 &\n"
            "wait\n", "-n", "4", "-o", "port.out")
        cluster.wait_for(job)
        self.assertEqual(weights_in(read("first.out") + read("second.out")), set())
        for name in ("first.out", "second.out"):
            for step in "01":
                self.assertIn(f"run 'slurm job {job} step {step}'", read(name))

    def test_jobs_of_an_array_train_apart(self):
        job = submit_example("array.sbatch", SHORT_FLAGS, "--array=1-2", "-o", "array-%a.out")
        cluster.wait_for(job)
        self.assertNotEqual(sha256_of("runs/seed-1"), sha256_of("runs/seed-2"))

    def test_a_signal_saves_and_the_script_sees_exit_code_75(self):
        job = cluster.submit(
            "srun " + words([*LONG, "--out", "signalled"]) + "; echo code $?",
            "-n", "2", "-o", "signalled.out")
        wait_until(lambda: "step" in read("signalled/metrics.jsonl"), 60, "a report")
        cluster.run("scancel", "--signal=TERM", job)
        cluster.wait_for(job)
        self.assertIn("stopped by a signal to rank", read("signalled.out"))
        self.assertIn("code 75", read("signalled.out"))

    def test_tasks_have_the_bits_of_tandems_launcher(self):
        cluster.run("srun", "-n", "3", *SHORT, "--out", "tasks")
        cluster.run(*SHORT, "--nproc", "3", "--out", "ranks")
        self.assertEqual(sha256_of("tasks"), sha256_of("ranks"))

    def test_a_job_that_is_requeued_three_times_ends_with_the_bits_of_one_start(self):
        cluster.run("srun", "-n", "2", *LONG, "--out", "whole")
        job = submit_example("train.sbatch", [*LONG_FLAGS, "--out", "requeued"],
                             "-o", "requeued.out")
        step = 0
        # scontrol requeue sends SIGTERM, as a preemption does.
        for interrupt in (["scancel", "--signal=USR1"], ["scontrol", "requeue"],
                          ["scancel", "--signal=USR1"]):
            wait_for_step_after(step, "requeued")
            cluster.run(*interrupt, job)
            wait_until(lambda: cluster.state(job) == "PENDING", 60, "the job is requeued")
            step = last_step("requeued")
        wait_until(lambda: f"start 3 of job {job} ended with code 0" in read("requeued.out"),
                   60, "the end")
        for start in "02":
            self.assertIn(f"start {start} of job {job} ended with code 75", read("requeued.out"))
        self.assertEqual(sha256_of("requeued"), sha256_of("whole"))

    def test_the_signal_before_the_time_limit_saves_and_stops(self):
        wait_until(lambda: "ended with code" in read("limited.out"), 60, "the signal")
        self.assertIn(f"start 0 of job {limited} ended with code 75", read("limited.out"))
        self.assertTrue(list((cluster.folder / "limited/checkpoints").iterdir()))


if __name__ == "__main__":
    if obstacle():
        print("skipped: " + obstacle())
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
