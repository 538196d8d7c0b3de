#!/usr/bin/python3
"""PyTorch's counterpart of `tandem bench step --prefetched`.

usage: step.py --data FOLDER [--batch-size 64] [--threads 1] [--steps 50]
               [--warmup 10] [--precision fp32|bf16]

A step is zero_grad, forward, nll_loss, backward, Adadelta(lr=1). 32 batches are
fetched beforehand. fp32 is PyTorch as it comes; bf16 is autocast over a
channels_last model, the fastest we found for it.
"""
import argparse
import contextlib
import time

import common


def batches(args, count):
    import torch
    from torch.utils.data import DataLoader
    with common.torchvision_root(args.data) as root:
        loader = DataLoader(common.mnist(root), batch_size=args.batch_size, shuffle=True,
                            generator=torch.Generator().manual_seed(0))
        source = iter(loader)
        return [next(source) for _ in range(count)]


def time_steps(args):
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(args.threads)
    fetched = batches(args, 32)
    model = common.make_net()
    autocast = contextlib.nullcontext
    if args.precision == "bf16":
        model = model.to(memory_format=torch.channels_last)

        def autocast():
            return torch.autocast("cpu", dtype=torch.bfloat16)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    model.train()
    times = []
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        data, target = fetched[step % len(fetched)]
        optimizer.zero_grad()
        with autocast():
            output = model(data)
            loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if step >= args.warmup:
            times.append(1000 * (time.perf_counter() - start))
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    args = parser.parse_args()
    common.limit_threads(args.threads)
    median, p10, p90 = common.spread(time_steps(args))
    common.report(ms_per_step=median, p10=p10, p90=p90,
                  samples_per_second=1000 * args.batch_size / median,
                  batch=args.batch_size, threads=args.threads, steps=args.steps,
                  precision=args.precision)


if __name__ == "__main__":
    main()
