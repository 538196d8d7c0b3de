#!/usr/bin/env python3
"""PyTorch's side of tests/parallel/ddp/data_parallel_parity_test.cpp, with the same
table of cases: a module on chunks of its batches, as torch.nn.DataParallel computes.

nn.DataParallel needs a GPU for each replica; on CPUs it only calls the module. This script
does so for one replica. For several, it repeats the steps of nn.DataParallel.forward():
scatter, one replica per chunk with the module's parameters and its own buffers (the first
replica has the module's buffers), gather.

Prints {case: {replicas: what was seen}} as JSON.
"""
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

from ddp_peer import flat, numbers

STEPS = 3


class Net(nn.Module):
    """Batch norm, and a buffer (`memory`) that training reads and changes."""

    def __init__(self):
        super().__init__()
        shapes = {"w1": (4, 3), "b1": (4,), "scale": (4,), "shift": (4,), "w2": (2, 4),
                  "frozen": (2,)}
        for salt, (name, shape) in enumerate(shapes.items()):
            self.register_parameter(
                name, nn.Parameter(numbers(salt, *shape), name != "frozen"))
        self.register_buffer("running_mean", numbers(20, 4))
        self.register_buffer("running_var", 1 + numbers(30, 4).abs())
        self.register_buffer("memory", numbers(40, 2))
        self.register_buffer("count", torch.tensor(7))

    def forward(self, x, factor):
        # F.batch_norm refuses a chunk of one row.
        h = torch.batch_norm(
            F.linear(x, self.w1, self.b1), self.scale, self.shift, self.running_mean,
            self.running_var, self.training, 0.1, 1e-5, False)
        y = (F.linear(torch.relu(h), self.w2) + self.frozen + self.memory) * factor
        if self.training:
            self.count.add_(1)
            self.memory.mul_(0.5).add_(y.detach().mean(0), alpha=0.25)
        return y, h.sum(1)


def data_parallel(net, replicas, *inputs):
    if replicas == 1:
        return nn.DataParallel(net)(*inputs)
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    outputs = []
    for number, chunk in enumerate(zip(*(torch.chunk(x, replicas) for x in inputs))):
        if number == 1:
            after = dict(net.named_buffers())
        if number > 0:
            for name, buffer in before.items():
                net._buffers[name] = buffer.clone()
        outputs.append(net(*chunk))
    if len(outputs) > 1:
        net._buffers.update(after)
    return tuple(torch.cat(parts) for parts in zip(*outputs))


# By name: rows of a batch, and the function of a step.
CASES = {
    "seven_rows": (7, {}),
    "eight_rows": (8, {}),
    "five_rows": (5, {}),
    "evaluated": (7, {"evaluated": True}),
    "inputs_with_gradients": (7, {"of_inputs": True}),
    "two_forwards": (7, {"forwards": 2}),
    "directly_too": (7, {"directly": True}),
    "penalty": (8, {"penalty": True}),
}


def run(replicas, rows, evaluated=False, of_inputs=False, forwards=1, directly=False,
        penalty=False):
    net = Net().train(not evaluated)
    trainable = [p for p in net.parameters() if p.requires_grad]
    seen = {name: [] for name in ("outputs", "gradients", "buffers")}
    salt = 0
    for _ in range(STEPS):
        loss, inputs = 0, []
        for number in range(forwards + directly):
            x = numbers(2 * salt + 1, rows, 3).requires_grad_(of_inputs)
            factor = 1 + numbers(3 * salt + 2, rows, 1)
            salt += 1
            # The last chunk calls the module itself; the others call replicas.
            own = directly and number == forwards
            y, sums = net(x, factor) if own else data_parallel(net, replicas, x, factor)
            loss = loss + y.square().mean() + sums.square().mean() / 8
            inputs.append(x)
            seen["outputs"].append(flat([y, sums]))
        if penalty:
            gradients = torch.autograd.grad(loss, trainable, create_graph=True)
            loss = loss + sum(g.square().sum() for g in gradients) / 16
        loss.backward()
        seen["gradients"].append(
            flat([p.grad for p in trainable] + [x.grad for x in inputs if of_inputs]))
        seen["buffers"].append(flat(net.buffers()))
        with torch.no_grad():
            for p in trainable:
                p.add_(p.grad, alpha=-0.05)
                p.grad = None
    seen["parameters"] = flat(net.parameters())
    seen["names"] = list(nn.DataParallel(net).state_dict())
    return seen


def main():
    torch.set_num_threads(1)
    print(json.dumps({name: {replicas: run(replicas, rows, **how)
                             for replicas in (1, 2, 3, 4)}
                      for name, (rows, how) in CASES.items()}))


if __name__ == "__main__":
    main()
