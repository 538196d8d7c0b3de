#!/usr/bin/python3
"""PyTorch's counterpart of `tandem bench loader`: torchvision's MNIST through a
DataLoader with num_workers=0, shuffled, on one thread.

usage: loader.py --data FOLDER [--batch-size 64] [--epochs 3] [--limit N]

The first epoch is not counted. --limit N uses the first N samples.
"""
import argparse
import time

import common
import models


def time_epochs(args):
    import torch
    from torch.utils.data import DataLoader, Subset
    torch.set_num_threads(1)
    rates = []
    with common.torchvision_root(args.data) as root:
        dataset = common.mnist(root, models.RECIPES["net"])
        if args.limit:
            dataset = Subset(dataset, range(args.limit))
        loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True,
                            num_workers=0)
        for epoch in range(args.epochs + 1):
            start = time.perf_counter()
            for _ in loader:
                pass
            if epoch > 0:
                rates.append(len(dataset) / (time.perf_counter() - start))
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0)
    args = parser.parse_args()
    common.limit_threads(1)
    median, p10, p90 = common.spread(time_epochs(args))
    common.report(samples_per_second=median, p10=p10, p90=p90, epochs=args.epochs,
                  batch=args.batch_size, threads=1)


if __name__ == "__main__":
    main()
