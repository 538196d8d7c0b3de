#!/usr/bin/python3
"""Tutorial 002's train_spawn.py, written after it: a linear layer on random numbers. Its
train.py for torch.distributed.launch has the same loop.

Difference: ranks are CPUs over Gloo.

usage: 002_spawn.py [--nproc 2]
"""
import argparse
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402

common.limit_threads(1)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.optim as optim  # noqa: E402
from torch.multiprocessing import spawn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402


def main(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    ddp_model = DDP(nn.Linear(10, 10))
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    for epoch in range(10):
        optimizer.zero_grad()
        outputs = ddp_model(torch.randn(20, 10))
        labels = torch.randn(20, 10)
        loss = loss_fn(outputs, labels)
        loss.backward()
        optimizer.step()
        common.say(f"Epoch: {epoch}, Loss: {loss.item()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc", type=int, default=2)
    nproc = parser.parse_args().nproc
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(common.free_port()),
                      GLOO_SOCKET_IFNAME="lo")
    spawn(main, args=(nproc,), nprocs=nproc, join=True)
