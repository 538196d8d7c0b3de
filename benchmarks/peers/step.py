#!/usr/bin/python3
"""PyTorch's counterpart of `tandem bench step --model net --prefetched`.

usage: step.py --data FOLDER [--batch-size 64] [--threads 1] [--steps 50]
               [--warmup 10] [--precision fp32|bf16] [--compile]

A step is zero_grad, forward, nll_loss, backward, Adadelta(lr=1). 32 batches are fetched
beforehand. fp32 uses PyTorch's defaults. bf16 uses autocast with a channels_last model,
which was the fastest of the ways tried. --compile: torch.compile(model).
"""
import contextlib
import time

import common
import models

NAME = "net"


def batches(args, count):
    import torch
    pixels, labels = common.read_part(args.data, "train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    size = args.batch_size
    return [common.batch_of(pixels, labels, order[i * size:(i + 1) * size],
                            models.RECIPES[NAME]) for i in range(count)]


def time_steps(args):
    import torch
    torch.set_num_threads(args.threads)
    fetched = batches(args, 32)
    model = models.make_model(NAME)
    loss_of = models.make_loss(NAME)
    autocast = contextlib.nullcontext
    if args.precision == "bf16":
        model = model.to(memory_format=torch.channels_last)

        def autocast():
            return torch.autocast("cpu", dtype=torch.bfloat16)
    optimizer = models.make_optimizer(NAME, model.parameters())
    model.train()
    if args.compile:
        model = torch.compile(model)
    times = []
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        data, target = fetched[step % len(fetched)]
        optimizer.zero_grad()
        with autocast():
            output = model(data)
            loss = loss_of(output, target)
        loss.backward()
        optimizer.step()
        if step >= args.warmup:
            times.append(1000 * (time.perf_counter() - start))
    return times


def main():
    parser = common.step_arguments(__doc__)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    common.limit_threads(args.threads)
    median, p10, p90 = common.spread(time_steps(args))
    common.report(ms_per_step=median, p10=p10, p90=p90,
                  samples_per_second=1000 * args.batch_size / median,
                  batch=args.batch_size, threads=args.threads, steps=args.steps,
                  precision=args.precision, compiled=args.compile)


if __name__ == "__main__":
    main()
