#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel for tests/parallel/ddp/ddp_parity_test.cpp, whose table
of cases this one repeats: the same model, weights and data, 2, 3 and 4 Gloo ranks.

Prints {case: {world: [values of rank 0, values of rank 1, ...]}} as JSON.
"""
import contextlib
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

WORLDS = (2, 3, 4)
STEPS = 4


def numbers(salt, *shape):
    """Small numbers without a pattern, exact in any precision."""
    count = torch.Size(shape).numel()
    return torch.tensor([((7 * i + 5 * salt) % 11 - 5) / 8 for i in range(count)],
                        dtype=torch.float64).view(shape)


class Net(nn.Module):
    """Batch norm, and a buffer (`memory`) that training reads and changes."""

    def __init__(self, rank, unused):
        super().__init__()
        shapes = {"w1": (4, 3), "b1": (4,), "scale": (4,), "shift": (4,), "w2": (2, 4),
                  "frozen": (2,), "extra": (3,), "never": (2,)}
        for salt, (name, shape) in enumerate(shapes.items()):
            value = numbers(salt + 3 * rank, *shape)
            self.register_parameter(name, nn.Parameter(value, name != "frozen"))
        self.register_buffer("running_mean", numbers(20 + rank, 4))
        self.register_buffer("running_var", 1 + numbers(30 + rank, 4).abs())
        self.register_buffer("memory", numbers(40 + rank, 2))
        self.register_buffer("count", torch.tensor(7 + rank))
        self.uses_extra = not unused or rank == 0
        self.uses_never = not unused
        self.before = []

    def forward(self, x):
        self.before.append(flat(self.buffers()))
        h = F.linear(x, self.w1, self.b1)
        h = F.batch_norm(h, self.running_mean, self.running_var, self.scale, self.shift,
                         True, 0.1, 1e-5)
        self.count.add_(1)
        y = F.linear(F.relu(h), self.w2) + self.frozen + self.memory
        if self.uses_extra:
            y = y + self.extra.sum()
        if self.uses_never:
            y = y + self.never
        self.memory.mul_(0.5).add_(y.detach().mean(0), alpha=0.25)
        return y


def flat(tensors):
    return torch.cat([t.detach().to(torch.float64).reshape(-1) for t in tensors]).tolist()


def sum_hook(_, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return work.then(lambda future: future.value()[0])


def own_hook(_, bucket):
    buffer = bucket.buffer().mul_(2)
    work = dist.all_reduce(buffer, async_op=True).get_future()
    return work.then(lambda future: future.value()[0].div_(1 + dist.get_world_size()))


def group_of(rank, world):
    groups = [dist.new_group(list(range(parity, world, 2))) for parity in (0, 1)]
    return groups[rank % 2]


def mean_of_buffers(net):
    for buffer in net.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer.div_(dist.get_world_size())


# By name: arguments of DistributedDataParallel and of run().
CASES = {
    "plain": ({}, {}),
    "buffers_off": ({"broadcast_buffers": False}, {}),
    "buffers_average": ({"broadcast_buffers": False}, {"average": True}),
    "small_buckets": ({"bucket_cap_mb": 1e-5}, {}),
    "bucket_views": ({"gradient_as_bucket_view": True}, {}),
    "static_graph": ({"static_graph": True}, {}),
    "unused": ({"find_unused_parameters": True}, {"unused": True}),
    "group": ({}, {"in_groups": True}),
    "ignored": ({}, {"ignored": ["extra", "count"]}),
    "no_sync": ({}, {"how": "no_sync"}),
    "twice": ({}, {"how": "twice"}),
    "two_losses": ({}, {"how": "two_losses"}),
    "sum": ({}, {"hook": sum_hook}),
    "own_hook": ({}, {"hook": own_hook}),
    "fp16": ({}, {"hook": default_hooks.fp16_compress_hook}),
}


def backward(how, ddp, data):
    def loss():
        return ddp(next(data)).square().mean()

    if how == "two_losses":
        y = ddp(next(data))
        (y.square().mean() + y.sum()).backward()
        return
    if how in ("no_sync", "twice"):
        with ddp.no_sync() if how == "no_sync" else contextlib.nullcontext():
            loss().backward()
    loss().backward()


def run(rank, world, arguments, how="plain", hook=None, unused=False, in_groups=False,
        ignored=(), average=False):
    net = Net(rank, unused)
    if in_groups:
        arguments = {**arguments, "process_group": group_of(rank, world)}
    if ignored:
        # The reducer expects the name of a module and a dot, which are missing here.
        names = [*ignored, *("." + name for name in ignored)]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, names)
    if not arguments.get("broadcast_buffers", True):
        # PyTorch 1.13 does this, PyTorch 2 does not.
        for buffer in net.buffers():
            dist.broadcast(buffer, 0)
    ddp = DistributedDataParallel(net, **arguments)
    if hook:
        ddp.register_comm_hook(None, hook)
    data = (numbers(2 * i + 3 * rank + 1, 5, 3) + rank for i in range(2 * STEPS))
    trainable = [p for p in net.parameters() if p.requires_grad]
    gradients, without = [], set()
    for _ in range(STEPS):
        backward(how, ddp, data)
        if average:
            mean_of_buffers(net)
        without |= {name for name, p in net.named_parameters()
                    if p.requires_grad and p.grad is None}
        gradients.append(flat(torch.zeros_like(p) if p.grad is None else p.grad
                              for p in trainable))
        with torch.no_grad():
            for p in trainable:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-0.1)
                p.grad = None
    return {"gradients": gradients, "before": net.before, "buffers": flat(net.buffers()),
            "parameters": flat(net.parameters()), "without": sorted(without),
            "names": sorted(ddp.state_dict())}


def batch_norm_example(rank):
    """Returns running means after five steps on data that differ by 1 between
    neighbors."""
    ddp = DistributedDataParallel(nn.BatchNorm1d(4).double())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        ddp(numbers(step, 6, 4) + rank).square().mean().backward()
        optimizer.step()
    return ddp.module.running_mean.tolist()


def run_rank(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting{world}", rank=rank,
        world_size=world)
    seen = {name: run(rank, world, arguments, **how)
            for name, (arguments, how) in CASES.items()}
    seen["batch_norm_example"] = batch_norm_example(rank)
    with open(f"{folder}/{world}.{rank}", "w") as file:
        json.dump(seen, file)


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    ranks = {}
    with tempfile.TemporaryDirectory() as folder:
        for world in WORLDS:
            # Forked, so torch is imported once; no thread has been used before.
            torch.multiprocessing.start_processes(
                run_rank, (world, folder), nprocs=world, start_method="fork")
            ranks[world] = [json.load(open(f"{folder}/{world}.{rank}"))
                            for rank in range(world)]
    print(json.dumps({name: {world: [rank[name] for rank in ranks[world]]
                             for world in WORLDS} for name in ranks[WORLDS[0]][0]}))


if __name__ == "__main__":
    main()
