#!/usr/bin/python3
"""scripts/gpu-test as far as it goes without a GPU: its words, what it keeps, its table."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "scripts",
                      "gpu-test")
LOADER = importlib.machinery.SourceFileLoader("gpu_test", SCRIPT)
SPEC = importlib.util.spec_from_loader("gpu_test", LOADER)
gpu_test = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(gpu_test)


def said(*arguments, path="/nowhere"):
    """The exit code and the last line, where no nvidia-smi is found."""
    done = subprocess.run([sys.executable, SCRIPT, *arguments], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "PATH": path})
    return done.returncode, done.stdout.strip().splitlines()[-1]


class GpuTest(unittest.TestCase):
    def state(self, folder, *entries, forgotten=()):
        state = gpu_test.State(folder, forgotten)
        for part, name, fields in entries:
            state.add(part, name, **fields)
        return state

    def test_words_that_are_none_are_named(self):
        for arguments, expected in (
                (["--only", "biuld"], "unknown part 'biuld'; there are build, test, peers, ours, "
                 "sanitize"),
                (["--only", "build", "--torch", "/nowhere"], "'/nowhere' is no Python"),
                (["--only", "test", "--device", "cpu"], "--device cpu is for --only peers,ours")):
            code, line = said(*arguments)
            self.assertEqual(code, 2)
            self.assertIn(expected, line)

    def test_without_a_gpu_it_says_what_would_run(self):
        code, line = said("--only", "test,build", "--torch", sys.executable)
        self.assertEqual(code, 1)
        self.assertIn("there is no GPU here", line)
        self.assertIn("test would run", line)

    def test_what_is_done_is_not_done_again(self):
        calls = []

        def part(_):
            return [("good", lambda: calls.append("good") or {"x": 1}),
                    ("bad", lambda: calls.append("bad") or {"failed": ["A.b"]})]
        gpu_test.ours_of_a_test = part
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                self.assertFalse(
                    gpu_test.run_part("ours_of_a_test", None, self.state(folder)))
            self.assertEqual(calls, ["good", "bad", "bad"])
            again = self.state(folder, forgotten=["ours_of_a_test"])
            self.assertFalse(again.done("ours_of_a_test", "good"))

    def test_what_compute_sanitizer_says_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "compute-sanitizer")
            before = os.environ["PATH"]
            os.environ["PATH"] = folder + os.pathsep + before
            try:
                for lines, code, expected in (
                        (["ERROR SUMMARY: 0 errors"], 0,
                         {"summary": "ERROR SUMMARY: 0 errors", "failed": []}),
                        (["Invalid __global__ read", "ERROR SUMMARY: 1 error"], 9,
                         {"failed": ["Invalid __global__ read", "ERROR SUMMARY: 1 error"]}),
                        ([], 1, {"failed": ["exit code 1"]}),
                        ([], 0, {"failed": ["exit code 0"]})):
                    with open(program, "w", encoding="utf-8") as file:
                        file.write("#!/bin/sh\n" + "".join(
                            f"echo '========= {line}'\n" for line in lines) +
                            f"exit {code}\n")
                    os.chmod(program, 0o755)
                    self.assertEqual(gpu_test.sanitized(["/bin/true"], "memcheck")(), expected)
            finally:
                os.environ["PATH"] = before

    def test_the_table_divides_the_best_of_each_and_judges(self):
        with tempfile.TemporaryDirectory() as folder:
            state = self.state(
                folder,
                ("peers", "step eager fp32 contiguous", {"ms_per_step": 0.9}),
                ("peers", "step eager bf16 channels_last", {"ms_per_step": 0.6}),
                ("peers", "step graph bf16 contiguous", {"failed_for": "no"}),
                ("ours", "step cuda tf32", {"ms_per_step": 0.05}),
                ("ours", "step cudagraph fp32",
                 {"run_ms_per_step": 0.11, "replay_ms_per_step": 0.1}),
                ("ours", "step cudagraph bf16",
                 {"run_ms_per_step": 0.06, "replay_ms_per_step": 0.05}),
                ("ours", "optimizer sgd", {"ratio_to_memcpy": 1.1}),
                ("ours", "optimizer adam", {"ratio_to_memcpy": 1.15}),
                ("ours", "003-ddp tf32", {"seconds": 1.0, "test_accuracy": 90.0}),
                ("ours", "003-ddp bf16", {"seconds": 2.5, "test_accuracy": 99.1}))
            text = gpu_test.page(state, "Some GPU, 1", "scripts/gpu-test")
        self.assertIn("| step: PyTorch eager / cuda | 12 x | 5 x | 15 x | step eager bf16", text)
        self.assertIn("| step: PyTorch graph / cuda | not measured |", text)
        self.assertIn("bare replay | 1.2 (missed) | 1.1 | 1.03 | step cudagraph bf16", text)
        self.assertIn("its bytes | 1.15 | 1.2 | 1 | optimizer adam |", text)
        self.assertIn("tf32 or bf16 | 2.5 s (missed) | 2 s | 0.7 s | 003-ddp bf16 |", text)


if __name__ == "__main__":
    unittest.main()
