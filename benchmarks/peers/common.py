"""What the PyTorch peers share: the net of document 003, MNIST, quantiles.

Imports nothing that reads thread settings: call limit_threads() before torch is
imported, since BLAS reads its number of threads when it is loaded.
"""
import contextlib
import gzip
import json
import os
import shutil
import statistics
import tempfile

MEAN, STD = 0.1307, 0.3081
FILES = [f"{part}-{what}" for part in ("train", "t10k")
         for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]


def limit_threads(threads):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


@contextlib.contextmanager
def torchvision_root(folder):
    """A temporary root as torchvision.datasets.MNIST wants it: MNIST/raw with the
    four files unpacked. `folder` holds them, gzip or plain."""
    with tempfile.TemporaryDirectory(prefix="tandem-peer-") as root:
        raw = os.path.join(root, "MNIST", "raw")
        os.makedirs(raw)
        for name in FILES:
            path = os.path.join(folder, name)
            target = os.path.join(raw, name)
            if os.path.exists(path):
                os.symlink(os.path.abspath(path), target)
            else:
                with gzip.open(path + ".gz") as packed, open(target, "wb") as plain:
                    shutil.copyfileobj(packed, plain)
        yield root


def mnist(root):
    """The training part through PIL, ToTensor and Normalize, as PyTorch's own
    MNIST example reads it."""
    from torchvision import datasets, transforms
    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])
    return datasets.MNIST(root, train=True, transform=transform)


def make_net():
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 32, 3, 1)
            self.conv2 = nn.Conv2d(32, 64, 3, 1)
            self.dropout1 = nn.Dropout(0.25)
            self.dropout2 = nn.Dropout(0.5)
            self.fc1 = nn.Linear(9216, 128)
            self.fc2 = nn.Linear(128, 10)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = F.relu(self.conv2(x))
            x = F.max_pool2d(x, 2)
            x = self.dropout1(x)
            x = torch.flatten(x, 1)
            x = F.relu(self.fc1(x))
            x = self.dropout2(x)
            x = self.fc2(x)
            return F.log_softmax(x, dim=1)

    torch.manual_seed(0)
    return Net()


def spread(values):
    """Median, p10 and p90 with linear interpolation."""
    values = sorted(values)

    def quantile(q):
        place = q * (len(values) - 1)
        below = int(place)
        above = min(below + 1, len(values) - 1)
        return values[below] + (values[above] - values[below]) * (place - below)

    return statistics.median(values), quantile(0.1), quantile(0.9)


def report(**fields):
    import torch
    import torchvision
    fields["torch"] = torch.__version__
    fields["torchvision"] = torchvision.__version__
    print(json.dumps(fields), flush=True)
