"""The six models of the tutorials and their settings, in PyTorch and as flags of tandem.
Importing this file imports no torch.
"""
import collections

# Batch sizes are per rank. `pad`: pixels on each side of an image.
Recipe = collections.namedtuple("Recipe", "batch_size optimizer lr mean std pad loss")
RECIPES = {
    "net": Recipe(64, "adadelta", 1.0, 0.1307, 0.3081, 0, "nll"),
    "convnet": Recipe(128, "adadelta", 0.5, 0.1302, 0.3069, 0, "nll"),
    "net5x5": Recipe(32, "sgd", 0.1, 0.1307, 0.3081, 0, "cross_entropy"),
    "simplenet": Recipe(64, "sgd", 0.01, 0.1307, 0.3081, 0, "cross_entropy"),
    "lenet3x3": Recipe(32, "adam", 1e-3, 0.1307, 0.3081, 2, "cross_entropy"),
    "convnet_bn": Recipe(100, "sgd", 1e-4, 0.0, 1.0, 0, "cross_entropy"),
}


def tandem_flags(name):
    """Flags of `tandem train` for the same training; loss and padding are its defaults."""
    recipe = RECIPES[name]
    return ["--model", name, "--batch-size", str(recipe.batch_size), "--optimizer",
            recipe.optimizer, "--lr", str(recipe.lr), "--mean", str(recipe.mean),
            "--std", str(recipe.std)]


def make_model(name, seed=0):
    import torch
    from torch import nn
    layers = {
        "net": lambda: [
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
            nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128),
            nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(dim=1)],
        "convnet": lambda: [
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
            nn.MaxPool2d(2), nn.Dropout2d(0.1), nn.Flatten(), nn.Linear(4608, 64),
            nn.ReLU(), nn.Dropout2d(0.25), nn.Linear(64, 10), nn.LogSoftmax(dim=1)],
        "net5x5": lambda: [
            nn.Conv2d(1, 8, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 16, 5),
            nn.Dropout2d(0.2), nn.MaxPool2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(64, 120), nn.ReLU(), nn.Linear(120, 10)],
        "simplenet": lambda: [nn.Flatten(), nn.Linear(784, 10)],
        "lenet3x3": lambda: [
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3),
            nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2304, 128), nn.ReLU(),
            nn.Linear(128, 10)],
        "convnet_bn": lambda: [
            nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32),
            nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 10)],
    }
    torch.manual_seed(seed)
    return nn.Sequential(*layers[name]())


def make_loss(name):
    import torch.nn.functional as F
    return F.nll_loss if RECIPES[name].loss == "nll" else F.cross_entropy


def make_optimizer(name, parameters):
    import torch
    recipe = RECIPES[name]
    kinds = {"adadelta": torch.optim.Adadelta, "sgd": torch.optim.SGD,
             "adam": torch.optim.Adam}
    return kinds[recipe.optimizer](parameters, lr=recipe.lr)
