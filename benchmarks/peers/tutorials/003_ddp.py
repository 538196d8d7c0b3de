#!/usr/bin/python3
"""Tutorial 003's training with DistributedDataParallel, written after it and the example that
it follows.

Differences: MNIST is not downloaded; ranks are CPUs over Gloo, started by this program
instead of torchrun; each rank loads its data itself (num_workers is 0, since two cores have
no room for two loading processes); and only rank 0 tests.

usage: 003_ddp.py --data FOLDER [--epochs 14] [--limit N] [--nproc 2]
"""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import example_003  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402


def main(rank, world_size, args, seed=1):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(seed)
    dataset1 = common.tutorial_dataset(args, "train", example_003.RECIPE)
    train_loader = DataLoader(dataset1, sampler=DistributedSampler(dataset1), batch_size=64)
    model = torch.nn.parallel.DistributedDataParallel(example_003.Net())
    example_003.run(args, model, train_loader, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    common.run_tutorial_ranks(main, common.tutorial_arguments(epochs=14, ranks=2))
