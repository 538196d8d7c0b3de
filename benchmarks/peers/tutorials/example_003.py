"""The common part of tutorial 003's three programs: the model, and training and test of the
example that they follow (github.com/pytorch/examples, mnist), which prints the lines."""
import common
import models

common.limit_threads(1)
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch.optim as optim  # noqa: E402
from torch.optim.lr_scheduler import StepLR  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

RECIPE = models.RECIPES["net"]


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = self.conv1(x)
        x = F.relu(x)
        x = self.conv2(x)
        x = F.relu(x)
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = self.fc1(x)
        x = F.relu(x)
        x = self.dropout2(x)
        x = self.fc2(x)
        output = F.log_softmax(x, dim=1)
        return output


def train(model, train_loader, optimizer, epoch, exchange=None, device="cpu"):
    """Trains an epoch; calls exchange(model) between backward and the step."""
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        if exchange:
            exchange(model)
        optimizer.step()
        if batch_idx % 10 == 0:
            common.say('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
                epoch, batch_idx * len(data), len(train_loader.dataset),
                100. * batch_idx / len(train_loader), loss.item()))


def test(model, test_loader, device="cpu"):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction='sum').item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    size = len(test_loader.dataset)
    common.say('Test set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)'.format(
        test_loss / size, correct, size, 100. * correct / size))


def loading(device):
    """Arguments of the example's loaders, which depend on the device."""
    return {} if device == "cpu" else {"num_workers": 1, "pin_memory": True}


def run(args, model, train_loader, rank=0, sampler=None, exchange=None):
    """Trains all epochs, and tests on rank 0. Sets the epoch of `sampler`, if given."""
    device = getattr(args, "device", "cpu")
    model = model.to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    dataset2 = common.tutorial_dataset(args, "t10k", RECIPE)
    test_loader = DataLoader(dataset2, batch_size=1000, **loading(device))
    watch = common.Stopwatch()
    for epoch in range(1, args.epochs + 1):
        if sampler:
            sampler.set_epoch(epoch)
        with watch:
            train(model, train_loader, optimizer, epoch, exchange, device)
        if rank == 0:
            test(getattr(model, "module", model), test_loader, device)
        scheduler.step()
    if rank == 0:
        common.end_tutorial(args, getattr(model, "module", model).to("cpu"), RECIPE, watch)
