#!/usr/bin/python3
"""PyTorch's counterpart of `tandem bench step --model net --device cuda`, at its best.

usage: step_gpu.py --data FOLDER --way eager|compile|graph [--precision fp32|tf32|bf16]
                   [--layout contiguous|channels_last] [--device cuda|cpu]
                   [--batch-size 64] [--steps 200] [--warmup 20]

A step is a batch of 64 from images that lie on the device, normalised, then zero_grad,
forward, nll_loss, backward, Adadelta(lr=1). compile: torch.compile(mode=
"reduce-overhead") of the forward pass with its loss, and of the optimizer. graph: the
whole step in a CUDA graph made by hand. As in ours, the clock stops when the device is
done with the step.
"""
import contextlib
import time

import common
import models

NAME = "net"


def arguments():
    parser = common.step_arguments(__doc__, ("fp32", "tf32", "bf16"))
    parser.set_defaults(steps=200, warmup=20)
    parser.add_argument("--way", choices=("eager", "compile", "graph"), required=True)
    parser.add_argument("--layout", choices=("contiguous", "channels_last"),
                        default="contiguous")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    if args.device == "cpu" and (args.way == "graph" or args.precision == "tf32"):
        parser.error("a CUDA graph and tf32 need --device cuda")
    return args


class Step:
    """One training step: step(indices) of samples."""

    def __init__(self, args, torch):
        device = torch.device(args.device)
        recipe = models.RECIPES[NAME]
        pixels, labels = common.read_part(args.data, "train")
        everything = slice(None)
        self.images, self.labels = common.batch_of(
            pixels.to(device), labels.to(device), everything, recipe)
        layout = {"contiguous": torch.contiguous_format,
                  "channels_last": torch.channels_last}[args.layout]
        self.model = models.make_model(NAME).to(device, memory_format=layout).train()
        self.loss_of = models.make_loss(NAME)
        self.layout = layout
        capturable = {"capturable": True} if args.device == "cuda" else {}
        self.optimizer = torch.optim.Adadelta(self.model.parameters(), lr=recipe.lr,
                                              **capturable)
        self.autocast = contextlib.nullcontext
        if args.precision == "bf16":
            self.autocast = lambda: torch.autocast(args.device, dtype=torch.bfloat16)
        self.loss = self.forward
        self.update = self.optimizer.step
        if args.way == "compile":
            self.loss = torch.compile(self.forward, mode="reduce-overhead")
            self.update = torch.compile(self.optimizer.step, mode="reduce-overhead")

    def forward(self, data, target):
        with self.autocast():
            return self.loss_of(self.model(data).float(), target)

    def __call__(self, indices):
        data = self.images[indices].contiguous(memory_format=self.layout)
        self.optimizer.zero_grad()
        self.loss(data, self.labels[indices]).backward()
        self.update()


def captured(step, indices, torch):
    """The step as a graph that reads its samples' indices from one place."""
    place = indices.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(place)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(place)

    def replay(next_indices):
        place.copy_(next_indices)
        graph.replay()

    return replay


def time_steps(args):
    import torch
    torch.set_num_threads(args.threads)
    tf32 = args.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    step = Step(args, torch)
    order = torch.randperm(len(step.labels), device=args.device)
    batches = order[:len(order) // args.batch_size * args.batch_size].view(
        -1, args.batch_size)
    if args.way == "graph":
        step = captured(step, batches[0], torch)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    times = []
    for i in range(args.warmup + args.steps):
        start = time.perf_counter()
        step(batches[i % len(batches)])
        wait()
        if i >= args.warmup:
            times.append(1000 * (time.perf_counter() - start))
    return times


def main():
    args = arguments()
    common.limit_threads(args.threads)
    median, p10, p90 = common.spread(time_steps(args))
    common.report(ms_per_step=median, p10=p10, p90=p90, way=args.way, device=args.device,
                  layout=args.layout, precision=args.precision, batch=args.batch_size,
                  steps=args.steps, samples_per_second=1000 * args.batch_size / median)


if __name__ == "__main__":
    main()
