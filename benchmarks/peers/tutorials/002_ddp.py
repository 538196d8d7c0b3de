#!/usr/bin/python3
"""Tutorial 002's DistributedDataParallel program, written after it.

Differences with --as-written: MNIST is not downloaded, and the program ends with a test.
Further differences without it, for compare.py: MNIST is read without torchvision, and
numbers are float64.

usage: 002_ddp.py --data FOLDER (--as-written | --save-init FILE) [--epochs 5] [--limit N]
                  [--nproc 4]
"""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import models  # noqa: E402

common.limit_threads(1)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402


class SimpleNet(nn.Module):
    def __init__(self):
        super(SimpleNet, self).__init__()
        self.fc = nn.Linear(28 * 28, 10)

    def forward(self, x):
        x = x.view(x.size(0), -1)
        x = self.fc(x)
        return x


def train(rank, world_size, args, batch_size=64, learning_rate=0.01):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    recipe = models.RECIPES["simplenet"]
    train_dataset = common.tutorial_dataset(args, "train", recipe)
    train_sampler = DistributedSampler(train_dataset, num_replicas=world_size, rank=rank)
    train_loader = DataLoader(train_dataset, batch_size=batch_size, sampler=train_sampler)
    # DistributedDataParallel starts all ranks from rank 0's weights.
    model = common.tutorial_model(args, SimpleNet(), first=rank == 0)
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    watch = common.Stopwatch()
    for epoch in range(args.epochs):
        with watch:
            train_epoch(model, train_loader, optimizer, epoch, rank)
    if rank == 0:
        common.end_tutorial(args, model.module, recipe, watch)
    dist.destroy_process_group()


def train_epoch(model, train_loader, optimizer, epoch, rank):
    for batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        output = model(data)
        loss = nn.functional.cross_entropy(output, target)
        loss.backward()
        optimizer.step()

        if batch_idx % 100 == 0:
            common.say(f'Rank: {rank}, Epoch: {epoch}, Batch: {batch_idx}, '
                       f'Loss: {loss.item()}')


if __name__ == "__main__":
    common.run_tutorial_ranks(
        train, common.tutorial_arguments(epochs=5, ranks=4, parity=True))
