#!/usr/bin/env python3
"""Compares the optimizers of `tandem train` with torch.optim, in float64.

  optimizer_peer.py TANDEM FOLDER

The MLP of fsdp_peer.py trains for 24 steps with accumulation. Prints the largest relative
difference of the final parameters for each optimizer. Needs PyTorch 2.9 or later and NumPy.
"""
import inspect
import os
import subprocess
import sys

import torch
import torch.nn.functional as F
import torch.optim._muon
from fsdp_peer import (ACCUMULATE, BATCH, SAMPLES, SEED, batches, difference, make_net, samples,
                       write)
from peer import load_safetensors
from torch import optim

STEPS = 24


def muon(parameters):
    return [optim.Muon([p for p in parameters if p.dim() == 2], lr=1e-3, weight_decay=0.1),
            optim.AdamW([p for p in parameters if p.dim() != 2], lr=1e-3, weight_decay=0.1)]


# For each optimizer, those of PyTorch for a list of parameters, and the flags of tandem.
CASES = {
    "sgd": (lambda p: [optim.SGD(p, lr=1e-2, momentum=0.9)], ["--lr", "0.01", "--momentum", "0.9"]),
    "adam": (lambda p: [optim.Adam(p, lr=1e-2)], ["--lr", "0.01"]),
    "adadelta": (lambda p: [optim.Adadelta(p, lr=1.0)], ["--lr", "1"]),
    "adagrad": (lambda p: [optim.Adagrad(p, lr=1e-2, lr_decay=0.1)],
                ["--lr", "0.01", "--lr-decay", "0.1"]),
    "rmsprop": (lambda p: [optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5)],
                ["--lr", "0.01", "--centered", "--momentum", "0.5"]),
    "adamax": (lambda p: [optim.Adamax(p, lr=2e-3)], []),
    "nadam": (lambda p: [optim.NAdam(p, lr=2e-3)], []),
    "radam": (lambda p: [optim.RAdam(p, lr=1e-3)], []),
    "adafactor": (lambda p: [optim.Adafactor(p, lr=1e-2)], []),
    "muon": (muon, ["--lr", "0.001"])}


def compute_in_float64():
    """PyTorch orthogonalizes in bfloat16, and has numbers of states in the default type."""
    source = inspect.getsource(torch.optim._muon._zeropower_via_newtonschulz)
    exec(source.replace("torch.bfloat16", "grad.dtype"), vars(torch.optim._muon))
    torch.set_default_dtype(torch.float64)


def torch_parameters(make):
    net = make_net()
    optimizers = make(list(net.parameters()))
    x, y = samples()
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for batch in batches(step, 0, 1):
            (F.cross_entropy(net(x[batch]), y[batch]) / ACCUMULATE).backward()
        for optimizer in optimizers:
            optimizer.step()
    return {name: parameter.detach() for name, parameter in net.named_parameters()}


def tandem_parameters(tandem, folder, optimizer, flags):
    out = f"{folder}/{optimizer}"
    per_epoch = SAMPLES // (BATCH * ACCUMULATE)
    command = [tandem, "train", "--model", f"{folder}/net.pt2", "--data", f"{folder}/data", "--mean", "0",
               "--std", "1", "--precision", "fp64", "--optimizer", optimizer, "--batch-size", str(BATCH),
               "--accumulate", str(ACCUMULATE), "--epochs", str(STEPS // per_epoch), "--seed", str(SEED),
               "--eval-every", "100", "--out", out, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    newest = sorted(os.listdir(f"{out}/checkpoints"))[-1]
    return load_safetensors(f"{out}/checkpoints/{newest}/model.safetensors")


def main():
    tandem, folder = sys.argv[1:]
    torch.set_num_threads(1)
    compute_in_float64()
    write(folder)
    worst = 0
    for name, (make, flags) in CASES.items():
        found = difference(tandem_parameters(tandem, folder, name, flags), torch_parameters(make))
        worst = max(worst, found)
        print(f"{name}: {found:.1e}", flush=True)
    sys.exit(0 if worst < 1e-12 else 1)


if __name__ == "__main__":
    main()
