"""Progress of `tandem train` at a TLS server (status_server.py).

python3 test_progress.py BIN [UNITTEST ARGUMENTS]: the folder with tandem.
"""

import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import models
from status_server import StatusServer, make_authority, make_certificate

SKIPPED = 77
BIN = pathlib.Path(sys.argv[1]).resolve()
TRAIN = [BIN / "tandem", "train", "--model", "simplenet", "--data", "digits", "--limit", "640",
         "--epochs", "4", "--log-every", "2", "--eval-batch-size", "100"]
WARNING = "the TrainJob does not show the progress of this run"
TOKEN = "header.claims.signature"
folder = None


def setUpModule():
    global folder
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-kubeflow-"))
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    make_authority(folder, "ca")
    make_authority(folder, "other")
    make_certificate(folder, "ca")
    (folder / "token").write_text(TOKEN + "\n")


def train(url, *flags, ca="ca.crt", token="token"):
    variables = {name: value for name, value in os.environ.items()
                 if "proxy" not in name.lower()}
    variables |= {"KUBEFLOW_TRAINER_SERVER_URL": url,
                  "KUBEFLOW_TRAINER_SERVER_TOKEN": str(folder / token),
                  "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(folder / ca)}
    return subprocess.run([*map(str, TRAIN), *flags], env=variables, cwd=folder, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120)


class Progress(unittest.TestCase):
    def expect_ok(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("Test set:", run.stdout)

    def expect_one_warning(self, run, *reasons):
        self.expect_ok(run)
        lines = [line for line in run.stderr.splitlines() if "kubeflow" in line]
        self.assertEqual(len(lines), 1, run.stderr)
        for reason in (WARNING, *reasons):
            self.assertIn(reason, lines[0])

    def test_reaches_the_server_and_ends_with_100_percent(self):
        for flags in (["--nproc", "3"], ["--nproc", "2", "--rank-type", "thread"], []):
            with self.subTest(flags=flags), StatusServer(folder) as server:
                run = train(server.url(), *flags, "--out", "run")
                self.expect_ok(run)
                self.assertNotIn("kubeflow", run.stderr)
                self.check_requests(server.requests)
                shutil.rmtree(folder / "run")

    def check_requests(self, requests):
        self.assertGreaterEqual(len(requests), 2)
        percentages = []
        for path, headers, body in requests:
            self.assertEqual(path, "/trainjobs/a/status")
            self.assertEqual(headers["Authorization"], "Bearer " + TOKEN)
            self.assertEqual(headers["Content-Type"], "application/json")
            status = body["trainerStatus"]
            percentages.append(status["progressPercentage"])
            datetime.datetime.strptime(status["lastUpdatedTime"], "%Y-%m-%dT%H:%M:%SZ")
        self.assertLess(percentages[0], 100)
        self.assertEqual(percentages, sorted(percentages))
        self.assertEqual(percentages[-1], 100)
        self.check_last(requests[-1][2]["trainerStatus"])
        self.check_model(requests[-1][2])

    def check_model(self, body):
        if models.obstacle():
            return
        kept = models.through_trainer_model(body, "TrainerV1alpha1UpdateTrainJobStatusRequest")
        # The model turns the text of the time into a time.
        for request in (kept, body):
            del request["trainerStatus"]["lastUpdatedTime"]
        self.assertEqual(kept, body)

    def check_last(self, status):
        self.assertEqual(status["estimatedRemainingSeconds"], 0)
        metrics = {metric["name"]: float(metric["value"]) for metric in status["metrics"]}
        summary = json.loads((folder / "run/summary.json").read_text())
        self.assertEqual(metrics["epoch"], 4)
        self.assertEqual(metrics["step"], summary["steps"])
        for key in ("test_loss", "test_accuracy"):
            self.assertAlmostEqual(metrics[key], summary[key], delta=1e-5 * abs(summary[key]))

    def test_rejects_a_certificate_of_another_authority(self):
        with StatusServer(folder) as server:
            run = train(server.url(), "--nproc", "3", ca="other.crt")
            self.expect_one_warning(run, server.url(), "certificate")
            self.assertEqual(server.requests, [])

    def test_warns_once_if_the_server_answers_500(self):
        with StatusServer(folder, code=500) as server:
            run = train(server.url(), "--nproc", "3")
            self.expect_one_warning(run, "answered 500")
            self.assertGreaterEqual(len(server.requests), 2)

    def test_continues_if_the_server_hangs(self):
        with StatusServer(folder, hangs=True) as server:
            run = train(server.url())
            self.expect_one_warning(run, "failed (")

    def test_continues_if_there_is_no_server(self):
        with StatusServer(folder) as server:
            url = server.url()
        self.expect_one_warning(train(url, "--nproc", "2"), url, "failed (")

    def test_continues_if_the_name_does_not_resolve(self):
        self.expect_one_warning(train("https://server.invalid/status"), "failed (")

    def test_never_sends_the_token_unencrypted(self):
        self.expect_one_warning(train("http://127.0.0.1:9/status"), "failed (")

    def test_sends_nothing_without_a_valid_token(self):
        (folder / "empty").write_text("\n")
        (folder / "two").write_text("a\nX-Other: b\n")
        for token, reason in (("none", "cannot read"), ("empty", "has none"),
                              ("two", "has none")):
            with self.subTest(token=token), StatusServer(folder) as server:
                self.expect_one_warning(train(server.url(), token=token), reason)
                self.assertEqual(server.requests, [])

    def test_a_failed_run_does_not_reach_100_percent(self):
        with StatusServer(folder) as server:
            run = train(server.url(), "--optimizer", "sgd", "--lr", "1e37",
                        "--momentum", "0.9", "--nproc", "2")
            self.assertNotEqual(run.returncode, 0)
            for _, _, body in server.requests:
                self.assertLess(body["trainerStatus"]["progressPercentage"], 100)


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        print("skipped: there is no openssl; apt-get install openssl")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
