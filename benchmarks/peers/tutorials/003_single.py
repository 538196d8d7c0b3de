#!/usr/bin/python3
"""Document 003's train.py, written from it and from the example that it follows. Other than
there: MNIST is not downloaded, and the model stays on the CPU without --device cuda. As
there, one process more loads the data.

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
    args = common.document_arguments(epochs=14, device=True)
    torch.manual_seed(seed)
    dataset1 = common.document_dataset(args, "train", example_003.RECIPE)
    train_loader = DataLoader(dataset1, batch_size=64, shuffle=True,
                              **{"num_workers": 1, **example_003.loading(args.device)})
    example_003.run(args, example_003.Net(), train_loader)


if __name__ == "__main__":
    main()
