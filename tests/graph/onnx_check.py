#!/usr/bin/env python3
"""Checks ONNX files, and compares ONNX Runtime's outputs with tandem's.

usage: onnx_check.py FOLDER

For each NAME.onnx, the folder has NAME.input and NAME.output: a batch of samples and
tandem's outputs, as float32 without a header. Prints the largest difference of each
network: for the whole batch, and for batches of one sample.

Needs the packages onnx and onnxruntime.
"""
import glob
import os
import sys

import numpy as np
import onnx
import onnxruntime

LARGEST = 1e-5
SINGLE_SAMPLES = 20


def make_session(path):
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def largest_differences(path):
    session = make_session(path)
    value, = session.get_inputs()
    base = path[:-len(".onnx")]
    images = np.fromfile(base + ".input", np.float32).reshape(-1, *value.shape[1:])
    expected = np.fromfile(base + ".output", np.float32).reshape(len(images), -1)

    def difference(first, last):
        output, = session.run(None, {value.name: images[first:last]})
        wanted = expected[first:last]
        return float(np.abs(output.reshape(wanted.shape) - wanted).max())

    singles = min(SINGLE_SAMPLES, len(images))
    return difference(0, None), max(difference(i, i + 1) for i in range(singles))


def main():
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.onnx")))
    failed = not paths
    for path in paths:
        whole, single = largest_differences(path)
        failed |= not max(whole, single) <= LARGEST
        print(f"{os.path.basename(path)} {whole:.1e} {single:.1e}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
