#!/usr/bin/python3
"""Tutorial 000, first program, written after it.

Differences with --as-written: MNIST is not downloaded, and the program ends with a test.
Further differences without it, for compare.py: MNIST is read without torchvision, dropout
does nothing, numbers are float64, and the order is that of DistributedSampler with one
rank, a new one in each epoch, as with shuffle=True.

usage: 000_single.py --data FOLDER (--as-written | --save-init FILE) [--epochs 1] [--limit N]
"""
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import models  # noqa: E402

common.limit_threads(1)
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch.optim as optim  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402


class ConvNet(nn.Module):
    def __init__(self):
        super(ConvNet, self).__init__()
        self.cn1 = nn.Conv2d(1, 16, 3, 1)
        self.cn2 = nn.Conv2d(16, 32, 3, 1)
        self.dp1 = nn.Dropout2d(0.10)
        self.dp2 = nn.Dropout2d(0.25)
        self.fc1 = nn.Linear(4608, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = self.cn1(x)
        x = F.relu(x)
        x = self.cn2(x)
        x = F.relu(x)
        x = F.max_pool2d(x, 2)
        x = self.dp1(x)
        x = torch.flatten(x, 1)
        x = self.fc1(x)
        x = F.relu(x)
        x = self.dp2(x)
        x = self.fc2(x)
        op = F.log_softmax(x, dim=1)
        return op


def train(args):
    torch.manual_seed(0)
    watch = common.Stopwatch()
    recipe = models.RECIPES["convnet"]
    dataset = common.tutorial_dataset(args, "train", recipe)
    sampler = None if args.as_written else DistributedSampler(dataset, 1, 0)
    train_dataloader = DataLoader(dataset, batch_size=128, shuffle=args.as_written,
                                  sampler=sampler)
    model = common.tutorial_model(args, ConvNet())
    optimizer = optim.Adadelta(model.parameters(), lr=0.5)
    model.train()
    for epoch in range(args.epochs):
        if sampler:
            sampler.set_epoch(epoch)
        with watch:
            train_epoch(model, train_dataloader, optimizer, epoch)
    return model, recipe, watch


def train_epoch(model, train_dataloader, optimizer, epoch):
    for b_i, (X, y) in enumerate(train_dataloader):
        pred_prob = model(X)
        loss = F.nll_loss(pred_prob, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if b_i % 10 == 0:
            common.say('epoch: {} [{}/{} ({:.0f}%)]\t training loss: {:.6f}'.format(
                epoch, b_i, len(train_dataloader),
                100. * b_i / len(train_dataloader), loss.item()))


def main():
    args = common.tutorial_arguments(epochs=1, parity=True)
    start = time.time()
    trained = train(args)
    common.say(f"Finished training in {time.time()-start} secs")
    common.end_tutorial(args, *trained)


if __name__ == "__main__":
    main()
