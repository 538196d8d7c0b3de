#!/usr/bin/python3
"""Document 003's data parallel training by hand, written from it and from the example
that it follows (github.com/pytorch/examples, mnist), which has the lines. Other than
there: MNIST is read without torchvision, dropout does nothing, numbers are float64, ranks
are CPUs over Gloo, and rank 0 alone shows the test's result.

usage: 003_own_ddp.py --data FOLDER --save-init FILE [--epochs 14] [--limit N]
"""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import models  # noqa: E402

common.limit_threads(1)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch.optim as optim  # noqa: E402
from torch.optim.lr_scheduler import StepLR  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = self.conv1(x)
        x = F.relu(x)
        x = self.conv2(x)
        x = F.relu(x)
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = self.fc1(x)
        x = F.relu(x)
        x = self.fc2(x)
        output = F.log_softmax(x, dim=1)
        return output


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def train(model, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        output = model(data.double())
        loss = F.nll_loss(output, target)
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if batch_idx % 10 == 0:
            common.say('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
                epoch, batch_idx * len(data), len(train_loader.dataset),
                100. * batch_idx / len(train_loader), loss.item()))


def test(model, test_loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data.double())
            test_loss += F.nll_loss(output, target, reduction='sum').item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    size = len(test_loader.dataset)
    common.say('Test set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)'.format(
        test_loss / size, correct, size, 100. * correct / size))


def main(rank, world_size, args, seed=1, lr=1.0, gamma=0.7):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(seed)
    recipe = models.RECIPES["net"]
    dataset1 = common.document_dataset(args, "train", recipe)
    train_sampler = DistributedSampler(dataset1)
    train_loader = DataLoader(dataset1, sampler=train_sampler, batch_size=64)
    test_loader = DataLoader(common.document_dataset(args, "t10k", recipe), batch_size=1000)
    model = common.float64_from(Net(), args.save_init if rank == 0 else None)
    optimizer = optim.Adadelta(model.parameters(), lr=lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=gamma)
    for epoch in range(1, args.epochs + 1):
        train_sampler.set_epoch(epoch)
        train(model, train_loader, optimizer, epoch)
        if rank == 0:
            test(model, test_loader)
        scheduler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    common.run_document_ranks(main, 2, common.document_arguments(epochs=14))
