#!/usr/bin/python3
"""Tutorial 002's DataParallel program, written after its cells. The tutorial prints no
losses.

Differences: the data set, which the tutorial does not define, is MNIST with two pixels
around each image, since the layers need 32 x 32; the model is that of models.py with the
same layers; and the program ends with a test. The model is wrapped even without two GPUs, and
nn.DataParallel calls the module on a CPU. --nproc: CPU threads.

usage: 002_data_parallel.py --data FOLDER [--nproc 2] [--epochs 1] [--limit N]
"""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import models  # noqa: E402

common.limit_threads(1)
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.utils.data as data  # noqa: E402


def main():
    args = common.tutorial_arguments(epochs=1, ranks=2)
    torch.set_num_threads(args.nproc)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    common.say(f"device: {device}")
    common.say(f"Number of GPUs available: {torch.cuda.device_count()}")
    recipe = models.RECIPES["lenet3x3"]
    train_dataset = common.tutorial_dataset(args, "train", recipe)
    train_loader = data.DataLoader(train_dataset, batch_size=64, shuffle=True)
    model = nn.DataParallel(models.make_model("lenet3x3").to(device))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    watch = common.Stopwatch()
    for _ in range(args.epochs):
        model.train()
        with watch:
            for inputs, targets in train_loader:
                inputs, targets = inputs.to(device), targets.to(device)
                optimizer.zero_grad()
                outputs = model(inputs)
                loss = criterion(outputs, targets)
                loss.backward()
                optimizer.step()
    common.end_tutorial(args, model.module.to("cpu"), recipe, watch)


if __name__ == "__main__":
    main()
