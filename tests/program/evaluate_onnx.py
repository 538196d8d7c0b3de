#!/usr/bin/env python3
"""Evaluates an ONNX file on the test images of a folder like MNIST's, with ONNX Runtime.

usage: evaluate_onnx.py NET.onnx FOLDER

Prints "Average loss: 0.1234, Accuracy: 480/500" for one batch of all images, and then for
batches of one image. Needs the packages onnx and onnxruntime.
"""
import gzip
import os
import sys

import numpy as np
import onnx
import onnxruntime


def read_idx(path, header):
    name = path if os.path.exists(path) else path + ".gz"
    with (gzip.open if name.endswith(".gz") else open)(name, "rb") as file:
        return np.frombuffer(file.read()[header:], np.uint8)


def main():
    path, folder = sys.argv[1:]
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    value, = session.get_inputs()
    pixels = read_idx(f"{folder}/t10k-images-idx3-ubyte", 16)
    labels = read_idx(f"{folder}/t10k-labels-idx1-ubyte", 8)
    images = pixels.reshape(-1, *value.shape[1:]).astype(np.float32)
    if session.get_modelmeta().custom_metadata_map["input"] == "normalized":
        images = (images / np.float32(255) - np.float32(0.1307)) / np.float32(0.3081)
    for size in len(images), 1:
        outputs = np.concatenate([
            session.run(None, {value.name: images[i:i + size]})[0]
            for i in range(0, len(images), size)])
        outputs -= np.log(np.exp(outputs.astype(np.float64)).sum(1, keepdims=True))
        loss = -outputs[np.arange(len(labels)), labels].mean()
        right = (outputs.argmax(1) == labels).sum()
        print(f"Average loss: {loss:.4f}, Accuracy: {right}/{len(labels)}")


if __name__ == "__main__":
    main()
