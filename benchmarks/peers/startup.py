#!/usr/bin/python3
"""PyTorch's counterpart of starting `tandem train` with gzip IDX files on disk: reads
both parts of MNIST, makes one training step of net, prints "first step".

usage: startup.py --data FOLDER

Does not use torchvision, which would take longer to import and to unpack the files.
"""
import argparse

import common
import models

NAME = "net"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    args = parser.parse_args()
    common.limit_threads(1)
    import torch
    torch.set_num_threads(1)
    pixels, labels = common.read_part(args.data, "train")
    common.read_part(args.data, "t10k")
    model = models.make_model(NAME)
    optimizer = models.make_optimizer(NAME, model.parameters())
    recipe = models.RECIPES[NAME]
    order = torch.randperm(len(labels))[:recipe.batch_size]
    data, target = common.batch_of(pixels, labels, order, recipe)
    optimizer.zero_grad()
    models.make_loss(NAME)(model(data), target).backward()
    optimizer.step()
    print("first step", flush=True)


if __name__ == "__main__":
    main()
