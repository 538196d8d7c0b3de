#!/usr/bin/env python3
"""PyTorch's side of tests/program/samples_parity_test.cpp.

usage: samples_peer.py make FOLDER
       samples_peer.py train FOLDER
       samples_peer.py compare FOLDER

`make` writes the data of every case, and its network as CASE.pt2. `train` prints JSON
{case: {"losses", "test_loss", "metric"}} of training in float64. `compare` reads tandem's
exports CASE.out.pt2, .onnx and .safetensors, computes the outputs of the test part, and
prints JSON {case: largest difference from CASE.csv of `tandem predict`}.
"""
import csv
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data.distributed import DistributedSampler

from peer import load_safetensors

TRAIN, TEST, BATCH, EPOCHS, LR, SEED = 600, 60, 30, 3, 0.01, 4
COLORS = ["blue, dark", "green", "red"]
CLASSES, LABELS = 300, 5
# Loss, data, sizes of the layers.
CASES = {
    "mse": ("mse", "table", (5, 16, 1)),
    "l1": ("l1", "table", (5, 16, 1)),
    "classes": ("cross_entropy", "classes.npz", (16, 24, CLASSES)),
    "bce": ("bce", "labels", (10, 12, LABELS)),
}


def network(name):
    torch.manual_seed(SEED)
    inputs, hidden, outputs = CASES[name][2]
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def make_table(random, path, rows):
    """A linear function of two numbers and a category, with noise of 0.3."""
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["size", "color", "price", "shift"])
        for _ in range(rows):
            size, shift = random.normal(2, 3), random.uniform(-1, 1)
            color = random.integers(len(COLORS))
            price = 0.5 * size - 1.5 * shift + color + random.normal(0, 0.3)
            table.writerow([f"{size:.4f}", COLORS[color], f"{price:.4f}", f"{shift:.4f}"])


def read_table(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    inputs = [
        [float(row["size"]), *(float(row["color"] == color) for color in COLORS),
         float(row["shift"])]
        for row in rows]
    return np.float32(inputs), np.float32([[row["price"]] for row in rows])


def make(folder):
    random = np.random.default_rng(SEED)
    for part in ("table", "labels"):
        os.mkdir(f"{folder}/{part}")
    counts = {"train": TRAIN, "test": TEST}
    centers = random.normal(size=(CLASSES, 16))
    weights = random.normal(size=(10, LABELS))
    arrays = {}
    for part, count in counts.items():
        make_table(random, f"{folder}/table/{part}.csv", count)
        # Every class occurs in the training part.
        classes = random.permutation(np.arange(count) % CLASSES)
        noise = random.normal(scale=0.2, size=(count, 16))
        arrays[part + "_x"] = np.float32(centers[classes] + noise)
        arrays[part + "_y"] = classes.astype(np.int64)
        x = np.float32(random.normal(size=(count, 10)))
        np.save(f"{folder}/labels/{part}_x.npy", x)
        np.save(f"{folder}/labels/{part}_y.npy", np.float32(x @ weights > 0))
    np.savez(f"{folder}/classes.npz", **arrays)
    for name, (_, _, sizes) in CASES.items():
        batch = torch.export.Dim("batch")
        program = torch.export.export(
            network(name), (torch.zeros(2, sizes[0]),), dynamic_shapes=({0: batch},))
        torch.export.save(program, f"{folder}/{name}.pt2")


def load(folder, data):
    """Returns the inputs, normalized as tandem does, and the targets of both parts."""
    if data == "table":
        parts = [read_table(f"{folder}/table/{part}.csv") for part in ("train", "test")]
    elif data.endswith(".npz"):
        arrays = np.load(f"{folder}/{data}")
        parts = [(arrays[part + "_x"], arrays[part + "_y"]) for part in ("train", "test")]
    else:
        parts = [
            tuple(np.load(f"{folder}/{data}/{part}_{name}.npy") for name in "xy")
            for part in ("train", "test")]
    numbers = parts[0][0].astype(np.float64)
    mean, std = np.float32(numbers.mean(0)), np.float32(numbers.std(0))
    return [
        (torch.from_numpy((x - mean) / std).double(), torch.from_numpy(y))
        for x, y in parts]


def loss_of(loss, outputs, targets):
    if loss == "cross_entropy":
        return F.cross_entropy(outputs, targets)
    functions = {
        "mse": F.mse_loss, "l1": F.l1_loss, "bce": F.binary_cross_entropy_with_logits}
    return functions[loss](outputs, targets.double())


def metric_of(loss, outputs, targets):
    """Returns the accuracy in percent, or the mean absolute error."""
    if loss == "cross_entropy":
        return 100 * (outputs.argmax(1) == targets).double().mean()
    if loss == "bce":
        return 100 * ((outputs > 0) == (targets > 0.5)).double().mean()
    return (outputs - targets).abs().mean()


def train(folder, name):
    loss, data, _ = CASES[name]
    (x, y), (test_x, test_y) = load(folder, data)
    model = network(name).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    sampler = DistributedSampler(range(TRAIN), 1, 0, seed=SEED)
    losses = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(BATCH):
            value = loss_of(loss, model(x[batch]), y[batch])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            losses.append(value.item())
    with torch.no_grad():
        outputs = model(test_x)
    return {
        "losses": losses, "test_loss": loss_of(loss, outputs, test_y).item(),
        "metric": metric_of(loss, outputs, test_y).item()}


def exported_outputs(folder, name, x):
    """Yields the outputs of the network in each format."""
    import onnxruntime
    base = f"{folder}/{name}.out"
    yield torch.export.load(base + ".pt2").module()(x)
    session = onnxruntime.InferenceSession(
        base + ".onnx", providers=["CPUExecutionProvider"])
    output, = session.run(None, {session.get_inputs()[0].name: x.float().numpy()})
    yield torch.from_numpy(output).double()
    model = network(name).double()
    model.load_state_dict(load_safetensors(base + ".safetensors"), strict=True)
    yield model(x)


def compare(folder, name):
    loss, data, sizes = CASES[name]
    x = load(folder, data)[1][0]
    with open(f"{folder}/{name}.csv", newline="") as file:
        rows = list(csv.reader(file))[1:]
    predictions = torch.tensor(
        [[float(value) for value in row[-sizes[2]:]] for row in rows]).double()
    shown = {"cross_entropy": lambda y: y.softmax(1), "bce": torch.sigmoid}
    with torch.no_grad():
        return max(
            (shown.get(loss, lambda y: y)(y) - predictions).abs().max().item()
            for y in exported_outputs(folder, name, x))


action, folder = sys.argv[1:]
if action == "make":
    make(folder)
else:
    function = {"train": train, "compare": compare}[action]
    print(json.dumps({name: function(folder, name) for name in CASES}))
