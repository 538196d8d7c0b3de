#!/usr/bin/python3
"""PyTorch's counterpart of recipes/mnist-99.toml: convnet_bn on two ranks
under DistributedDataParallel, one cycle of SGD, one test at the end.

usage: mnist_99.py --data FOLDER --seed N [--epochs 2] [--bf16]

Reads IDX files into tensors and takes batches from them, which is faster than
torchvision's data set and a DataLoader. --bf16: autocast, channels last.
"""
import argparse
import os

import common
import models

MODEL = "convnet_bn"
BATCH = 32
TOP_RATE = 0.05


def normalise(pixels):
    return pixels.unsqueeze(1).float().div_(255).sub_(0.1307).div_(0.3081)


def batches(sampler, epoch, pixels, labels):
    import torch
    sampler.set_epoch(epoch)
    order = torch.tensor(list(sampler))
    for part in order.split(BATCH):
        yield normalise(pixels[part]), labels[part]


def count_correct(model, pixels, labels):
    import torch
    model.eval()
    with torch.no_grad():
        return sum((model(normalise(x)).argmax(1) == y).sum().item()
                   for x, y in zip(pixels.split(1000), labels.split(1000)))


def run_rank(rank, args, port):
    common.limit_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data.distributed import DistributedSampler
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    pixels, labels = common.read_part(args.data, "train")
    sampler = DistributedSampler(range(len(labels)), seed=args.seed)
    net = models.make_model(MODEL)
    torch.manual_seed(args.seed)
    for layer in net:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    if args.bf16:
        net = net.to(memory_format=torch.channels_last)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), TOP_RATE, momentum=0.9)
    steps = args.epochs * -(-len(sampler) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, TOP_RATE, total_steps=steps, cycle_momentum=False)
    loss_of = models.make_loss(MODEL)
    torch.manual_seed(args.seed + 1000 * rank)
    for epoch in range(args.epochs):
        for data, target in batches(sampler, epoch, pixels, labels):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                output = model(data)
            loss_of(output.float(), target).backward()
            optimizer.step()
            schedule.step()
    test = common.read_part(args.data, "t10k")
    half = [part[rank::2] for part in test]
    correct = torch.tensor(count_correct(net, *half))
    dist.all_reduce(correct)
    if rank == 0:
        common.report(test_accuracy=100 * correct.item() / len(test[1]), seed=args.seed)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()
    common.limit_threads(1)
    import torch.multiprocessing as mp
    mp.spawn(run_rank, (args, common.free_port()), nprocs=2)


if __name__ == "__main__":
    main()
