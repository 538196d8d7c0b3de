#!/usr/bin/python3
"""Tutorial 004's mnist-distributed.py, written after it: nodes x gpus.

Differences: a CPU over Gloo replaces a GPU over NCCL, MNIST is not downloaded, the model is
that of models.py with the same layers, MASTER_ADDR and MASTER_PORT may come from the
environment, as the tutorial's text says, and rank 0 ends with a test.

usage: 004_nodes_gpus.py --data FOLDER [-n 1] [-g 1] [-nr 0] [--epochs 2] [--limit N]
"""
import os
import pathlib
import sys
from datetime import datetime

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import models  # noqa: E402

common.limit_threads(1)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402


def train(gpu, args):
    rank = args.nr * args.gpus + gpu
    dist.init_process_group(backend='gloo', init_method='env://',
                            world_size=args.world_size, rank=rank)
    model = nn.parallel.DistributedDataParallel(models.make_model("convnet_bn"))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    recipe = models.RECIPES["convnet_bn"]
    train_dataset = common.tutorial_dataset(args, "train", recipe)
    train_sampler = DistributedSampler(train_dataset, num_replicas=args.world_size, rank=rank)
    train_loader = DataLoader(dataset=train_dataset, batch_size=100, shuffle=False,
                              num_workers=0, sampler=train_sampler)
    start = datetime.now()
    watch = common.Stopwatch()
    total_step = len(train_loader)
    for epoch in range(args.epochs):
        with watch:
            for i, (images, labels) in enumerate(train_loader):
                outputs = model(images)
                loss = criterion(outputs, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if (i + 1) % 100 == 0 and gpu == 0:
                    common.say('Epoch [{}/{}], Step [{}/{}], Loss: {:.4f}'.format(
                        epoch + 1, args.epochs, i + 1, total_step, loss.item()))
    if gpu == 0:
        common.say("Training complete in: " + str(datetime.now() - start))
    if rank == 0:
        common.end_tutorial(args, model.module, recipe, watch)


def main():
    args = common.node_arguments()
    args.world_size = args.gpus * args.nodes
    os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    os.environ.setdefault('MASTER_PORT', '8888')
    if os.environ['MASTER_ADDR'] == '127.0.0.1':
        os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')
    mp.spawn(train, nprocs=args.gpus, args=(args,))


if __name__ == '__main__':
    main()
