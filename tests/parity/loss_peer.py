#!/usr/bin/env python3
"""PyTorch's side of tests/parallel/loss_parity_test.cpp, with the same table of cases:
steps of a linear model on whole batches, with the losses of torch.nn.functional.

Prints {case: {"losses", "weights", "metric", "count"}} as JSON: the loss of each step and
the weights after it, and sums of the metric and of its targets over all steps.
"""
import json

import torch
import torch.nn.functional as F

from ddp_peer import numbers

SAMPLES, BATCH, POSITIONS, OUTPUTS, LR = 11, 4, 3, 5, 0.5
# The loss, the number of positions of a sample (0: none), the ignored class.
CASES = {
    "cross_entropy": ("cross_entropy", 0, -100),
    "ignored": ("cross_entropy", 0, 2),
    "positions": ("cross_entropy", POSITIONS, -100),
    "ignored_positions": ("cross_entropy", POSITIONS, 2),
    "nll_positions": ("nll", POSITIONS, 2),
    "mse": ("mse", 0, -100),
    "mse_positions": ("mse", POSITIONS, -100),
    "l1": ("l1", 0, -100),
    "bce": ("bce", 0, -100),
}


def targets_of(loss, shape):
    if loss in ("cross_entropy", "nll"):
        count = torch.Size(shape).numel()
        return (7 * torch.arange(count) + 3).remainder(11).remainder(OUTPUTS).view(shape)
    values = numbers(3, *shape, OUTPUTS)
    return values.add(0.625).div(1.25) if loss == "bce" else values


def loss_of(loss, output, targets, ignored):
    if loss in ("cross_entropy", "nll"):
        # As nanoGPT computes the loss of sequences.
        function = F.cross_entropy if loss == "cross_entropy" else F.nll_loss
        return function(output.view(-1, OUTPUTS), targets.view(-1), ignore_index=ignored)
    if loss == "bce":
        return F.binary_cross_entropy_with_logits(output, targets)
    return (F.mse_loss if loss == "mse" else F.l1_loss)(output, targets)


def metric_of(loss, output, targets, ignored):
    if loss in ("cross_entropy", "nll"):
        counted = targets != ignored
        return (output.argmax(-1)[counted] == targets[counted]).sum(), counted.sum()
    if loss == "bce":
        return ((output > 0) == (targets > 0.5)).sum(), targets.numel()
    return (output - targets).abs().sum(), targets.numel()


def run(loss, positions, ignored):
    shape = (SAMPLES, positions) if positions else (SAMPLES,)
    inputs, targets = numbers(1, *shape, 4), targets_of(loss, shape)
    weight = numbers(2, 4, OUTPUTS).requires_grad_()
    seen = {"losses": [], "weights": [], "metric": 0.0, "count": 0}
    for x, y in zip(inputs.split(BATCH), targets.split(BATCH)):
        output = x @ weight
        value = loss_of(loss, output, y, ignored)
        gradient, = torch.autograd.grad(value, weight)
        metric, count = metric_of(loss, output, y, ignored)
        seen["metric"] += float(metric)
        seen["count"] += int(count)
        weight = (weight - LR * gradient).detach().requires_grad_()
        seen["losses"].append(value.item())
        seen["weights"].append(weight.flatten().tolist())
    return seen


print(json.dumps({name: run(*case) for name, case in CASES.items()}))
