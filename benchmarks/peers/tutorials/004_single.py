#!/usr/bin/python3
"""Tutorial 004's mnist.py, written after it: one process.

Differences: a CPU replaces the GPU, MNIST is not downloaded, the model is that of models.py
with the same layers and seed 0 (the tutorial has no seed), and the program ends with a
test.

usage: 004_single.py --data FOLDER [-n 1] [-g 1] [-nr 0] [--epochs 2] [--limit N]
"""
import pathlib
import sys
from datetime import datetime

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import models  # noqa: E402

common.limit_threads(1)
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


def train(gpu, args):
    model = models.make_model("convnet_bn")
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    recipe = models.RECIPES["convnet_bn"]
    train_dataset = common.tutorial_dataset(args, "train", recipe)
    train_loader = DataLoader(dataset=train_dataset, batch_size=100, shuffle=True,
                              num_workers=0)
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
    common.end_tutorial(args, model, recipe, watch)


if __name__ == '__main__':
    train(0, common.node_arguments())
