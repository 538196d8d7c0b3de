#!/usr/bin/env python3
"""Runs files of `tandem export --out NAME.pt2` with PyTorch 2.9 or later.

usage: check_export.py FOLDER NAME...

FOLDER/NAME.pt2: the exported file.
FOLDER/NAME.safetensors: the checkpoint's model.
FOLDER/NAME-batch.safetensors: `input`, and `output` of tandem's evaluation.
FOLDER/NAME-original.pt2, if it exists: the network before the training.

Fails unless the exported file has the tensors of the checkpoint, has the outputs of the
original network with these tensors bit for bit, and evaluates as tandem does. Prints the
largest relative difference from tandem's outputs for each name.
"""
import os
import sys

import torch

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(FOLDER, "..", "parity"))
import peer  # noqa: E402

# Largest relative difference between two versions of LibTorch.
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
MODES = {torch.ops.aten.dropout.default: 2, torch.ops.aten.feature_dropout.default: 2,
         torch.ops.aten.batch_norm.default: 5}


def load(path):
    return torch.export.load(path).module()


def check_state(module, weights):
    state = module.state_dict()
    assert set(state) == set(weights), set(state) ^ set(weights)
    for name, tensor in weights.items():
        assert torch.equal(state[name], tensor), name


def run(module, batch):
    torch.manual_seed(1)
    with torch.no_grad():
        return module(batch)


def check_original(module, original, batch):
    original.load_state_dict(module.state_dict(), strict=True)
    for samples in (1, 2, len(batch)):
        found, expected = (run(part, batch[:samples]) for part in (module, original))
        assert torch.equal(found, expected), samples
    # Batch norm has changed its buffers.
    check_state(module, original.state_dict())


def evaluation(module):
    """Changes the mode of a program, which eval() cannot do."""
    for node in module.graph.nodes:
        if node.target in MODES:
            arguments = list(node.args)
            arguments[MODES[node.target]] = False
            node.args = tuple(arguments)
    module.recompile()
    return module


def check(folder, name):
    start = os.path.join(folder, name)
    batch = peer.load_safetensors(start + "-batch.safetensors")
    module = load(start + ".pt2")
    check_state(module, peer.load_safetensors(start + ".safetensors"))
    if os.path.exists(start + "-original.pt2"):
        check_original(load(start + ".pt2"), load(start + "-original.pt2"), batch["input"])
    output = run(evaluation(module), batch["input"])
    difference = (output - batch["output"]).abs().max() / batch["output"].abs().max()
    assert difference <= TOLERANCE[output.dtype], difference.item()
    print(f"{name} {difference.item():.1e}")


def main():
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        check(sys.argv[1], name)


if __name__ == "__main__":
    main()
