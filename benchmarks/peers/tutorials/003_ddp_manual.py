#!/usr/bin/python3
"""Tutorial 003's own data parallel training, written after it and the example that it
follows.

Differences: MNIST is not downloaded; ranks are CPUs over Gloo, started by this program
instead of torchrun; each rank loads its data itself (num_workers is 0, since two cores have
no room for two loading processes); and only rank 0 tests.

Further differences without --as-written, for compare.py: MNIST is read without torchvision,
dropout does nothing, and numbers are float64.

usage: 003_ddp_manual.py --data FOLDER (--as-written | --save-init FILE) [--epochs 14]
                         [--limit N] [--nproc 2]
"""
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import example_003  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402


def init_process(rank, world_size):
    common.say(f"MASTER_ADDR:  {os.environ['MASTER_ADDR']}")
    common.say(f"MASTER_PORT:  {os.environ['MASTER_PORT']}")
    common.say(f"Starting init process group. Current rank:  {rank}")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    common.say(f"Finished init process group. Current rank:  {rank}")


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def main(rank, world_size, args, seed=1):
    init_process(rank, world_size)
    torch.manual_seed(seed)
    dataset1 = common.tutorial_dataset(args, "train", example_003.RECIPE)
    train_sampler = DistributedSampler(dataset1)
    train_loader = DataLoader(dataset1, sampler=train_sampler, batch_size=64)
    model = common.tutorial_model(args, example_003.Net(), first=rank == 0)
    example_003.run(args, model, train_loader, rank, train_sampler, average_gradients)
    dist.destroy_process_group()


if __name__ == "__main__":
    common.run_tutorial_ranks(
        main, common.tutorial_arguments(epochs=14, ranks=2, parity=True))
