#!/usr/bin/python3
"""Document 000's first program, written from it. Other than there: MNIST is read without
torchvision, dropout does nothing, numbers are float64, and the order of the data is
DistributedSampler's of one rank, another in each epoch as shuffle=True gives one too.

usage: 000_single.py --data FOLDER --save-init FILE [--epochs 1] [--limit N]
"""
import pathlib
import sys

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
        self.fc1 = nn.Linear(4608, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = self.cn1(x)
        x = F.relu(x)
        x = self.cn2(x)
        x = F.relu(x)
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = self.fc1(x)
        x = F.relu(x)
        x = self.fc2(x)
        op = F.log_softmax(x, dim=1)
        return op


def train(args):
    torch.manual_seed(0)
    dataset = common.document_dataset(args, "train", models.RECIPES["convnet"])
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0)
    train_dataloader = DataLoader(dataset, batch_size=128, sampler=sampler)
    model = common.float64_from(ConvNet(), args.save_init)
    optimizer = optim.Adadelta(model.parameters(), lr=0.5)
    model.train()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for b_i, (X, y) in enumerate(train_dataloader):
            pred_prob = model(X.double())
            loss = F.nll_loss(pred_prob, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if b_i % 10 == 0:
                common.say('epoch: {} [{}/{} ({:.0f}%)]\t training loss: {:.6f}'.format(
                    epoch, b_i, len(train_dataloader),
                    100. * b_i / len(train_dataloader), loss.item()))


if __name__ == "__main__":
    train(common.document_arguments(epochs=1))
