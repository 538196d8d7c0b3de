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

from cluster import Cluster, free_ports, obstacle, wait_until

SKIPPED = 77
BIN = pathlib.Path(sys.argv[1]).resolve()
TRAIN = [BIN / "tandem", "train", "--model", "simplenet", "--data", "digits",
         "--eval-batch-size", "100"]
SHORT = [*TRAIN, "--limit", "256"]
# Its steps take long enough to be stopped in the middle.
LONG = [BIN / "tandem", "train", "--model", "convnet", "--limit", "1000", "--epochs", "3",
        "--batch-size", "3", "--log-every", "5", "--eval-batch-size", "100"]
cluster = None


def setUpModule():
    global cluster
    # The path of a socket is short, so not in $TMPDIR.
    folder = tempfile.mkdtemp(prefix="tandem-slurm-", dir="/tmp")
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    cluster = Cluster(folder)
    unittest.addModuleCleanup(cluster.stop)
    cluster.start()


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
        self.assertNotIn("1 rank over", printed)

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
        job = cluster.submit(
            "srun " + words([*SHORT, "--out", "array-$SLURM_ARRAY_TASK_ID",
                             "--seed", "$SLURM_ARRAY_TASK_ID"]),
            "-n", "2", "--array=1-2", "-o", "array-%a.out")
        cluster.wait_for(job)
        self.assertNotEqual(sha256_of("array-1"), sha256_of("array-2"))

    def test_a_signal_saves_and_the_script_sees_exit_code_75(self):
        job = cluster.submit(
            "srun " + words([*LONG, "--out", "signalled"]) + "; echo code $?",
            "-n", "2", "-o", "signalled.out")
        wait_until(lambda: "step" in read("signalled/metrics.jsonl"), 60, "a report")
        cluster.run("scancel", "--signal=TERM", job)
        cluster.wait_for(job)
        self.assertIn("stopped by a signal to rank", read("signalled.out"))
        self.assertIn("code 75", read("signalled.out"))

    def test_a_requeued_job_ends_with_the_bits_of_an_uninterrupted_run(self):
        cluster.run("srun", "-n", "2", *LONG, "--out", "whole")
        job = cluster.submit(
            "srun " + words([*LONG, "--out", "requeued", "--resume", "auto",
                             "--on-sigusr1", "stop"]) + "\n"
            "code=$?\necho code $code of start ${SLURM_RESTART_COUNT:-0}\n"
            "[ $code = 75 ] && scontrol requeue $SLURM_JOB_ID\nexit $code\n",
            "-n", "2", "--requeue", "--open-mode=append", "-o", "requeued.out")
        wait_until(lambda: "step" in read("requeued/metrics.jsonl"), 60, "a report")
        cluster.run("scancel", "--signal=USR1", job)
        wait_until(lambda: "code 0 of start 1" in read("requeued.out"), 90, "the end")
        cluster.wait_for(job)
        self.assertIn("code 75 of start 0", read("requeued.out"))
        self.assertEqual(sha256_of("requeued"), sha256_of("whole"))


if __name__ == "__main__":
    if obstacle():
        print("skipped: " + obstacle())
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
