#!/usr/bin/python3
"""The error lines of scripts/gpu-test on a machine without a GPU."""
import os
import subprocess
import sys
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "scripts",
                      "gpu-test")


def last_line(*arguments):
    """The exit code and the last line without nvidia-smi."""
    done = subprocess.run([sys.executable, "-B", SCRIPT, *arguments], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "PATH": "/nowhere"})
    return done.returncode, done.stdout.strip().splitlines()[-1]


class GpuTest(unittest.TestCase):
    def test_bad_arguments_are_named(self):
        for arguments, expected in (
                (["--only", "biuld"], "--only has 'biuld', expected build, test, recipes"),
                (["--only", "build", "--torch", "/nowhere"], "--torch is '/nowhere', expected")):
            code, line = last_line(*arguments)
            self.assertEqual(code, 2)
            self.assertIn(expected, line)

    def test_without_a_gpu_only_the_build_works(self):
        code, line = last_line("--only", "test,build", "--torch", sys.executable)
        self.assertEqual(code, 1)
        self.assertIn("nvidia-smi finds no GPU", line)


if __name__ == "__main__":
    unittest.main()
