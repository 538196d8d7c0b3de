#!/usr/bin/python3
"""PyTorch's counterpart of `tandem train --nproc N --data mnist`: a model under
DistributedDataParallel over Gloo, with DistributedSampler and torchvision's loader.

usage: ddp.py --data FOLDER [--model net] [--nproc 2] [--limit N] [--workers 0]

Trains one epoch with 1 thread per rank. The time is from the first batch's fetch to the
last step of the slowest rank, as in summary.json.
"""
import argparse
import os
import time
import warnings

import common
import models


def train_epoch(model, loader, optimizer, loss_of):
    steps = 0
    for data, target in loader:
        optimizer.zero_grad()
        output = model(data)
        loss = loss_of(output, target)
        loss.backward()
        optimizer.step()
        steps += 1
    return steps


def run_rank(rank, args, root, port):
    common.limit_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Subset
    from torch.utils.data.distributed import DistributedSampler
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.nproc)
    # convnet applies Dropout2d to vectors.
    warnings.filterwarnings("ignore", message="dropout2d")
    recipe = models.RECIPES[args.model]
    dataset = common.mnist(root, recipe)
    if args.limit:
        dataset = Subset(dataset, range(args.limit))
    sampler = DistributedSampler(dataset)
    sampler.set_epoch(0)
    loader = DataLoader(dataset, batch_size=recipe.batch_size, sampler=sampler,
                        num_workers=args.workers)
    model = DistributedDataParallel(models.make_model(args.model))
    optimizer = models.make_optimizer(args.model, model.parameters())
    model.train()
    dist.barrier()
    start = time.perf_counter()
    steps = train_epoch(model, loader, optimizer, models.make_loss(args.model))
    dist.barrier()
    seconds = time.perf_counter() - start
    if rank == 0:
        common.report(samples_per_second=len(sampler) * args.nproc / seconds,
                      train_seconds=seconds, steps=steps, world_size=args.nproc,
                      model=args.model, batch=recipe.batch_size, workers=args.workers, threads=1)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--model", choices=list(models.RECIPES), default="net")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0,
                        help="loader processes per rank")
    args = parser.parse_args()
    common.limit_threads(1)
    import torch.multiprocessing as mp
    with common.torchvision_root(args.data) as root:
        mp.spawn(run_rank, (args, root, common.free_port()), nprocs=args.nproc)


if __name__ == "__main__":
    main()
