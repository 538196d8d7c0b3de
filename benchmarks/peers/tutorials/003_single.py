#!/usr/bin/python3
"""Tutorial 003's train.py, written after it and the example that it follows. As there, one
more process loads the data.

Differences: MNIST is not downloaded, and the model is on the CPU without --device cuda.

usage: 003_single.py --data FOLDER [--epochs 14] [--limit N] [--device cpu|cuda]
"""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import example_003  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


def main(seed=1):
    args = common.tutorial_arguments(epochs=14, device=True)
    torch.manual_seed(seed)
    dataset1 = common.tutorial_dataset(args, "train", example_003.RECIPE)
    train_loader = DataLoader(dataset1, batch_size=64, shuffle=True,
                              **{"num_workers": 1, **example_003.loading(args.device)})
    example_003.run(args, example_003.Net(), train_loader)


if __name__ == "__main__":
    main()
