#!/usr/bin/python3
"""Document 002's DataParallel program, written from its cells. Other than there: the data
set, which it does not define, is MNIST with two pixels around it (its layers need 32 x 32),
the model is models.py's with the same layers, there are no GPUs, and the program ends with
a test. The document prints no losses.

The program wraps the model also without two GPUs: on a CPU nn.DataParallel calls the
module. --nproc gives it so many threads.

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
    args = common.document_arguments(epochs=1, ranks=2)
    torch.set_num_threads(args.nproc)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    common.say(f"device: {device}")
    common.say(f"Number of GPUs available: {torch.cuda.device_count()}")
    recipe = models.RECIPES["lenet3x3"]
    train_dataset = common.document_dataset(args, "train", recipe)
    train_loader = data.DataLoader(train_dataset, batch_size=64, shuffle=True)
    model = nn.DataParallel(models.make_model("lenet3x3"))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    watch = common.Stopwatch()
    for _ in range(args.epochs):
        model.train()
        with watch:
            for inputs, targets in train_loader:
                optimizer.zero_grad()
                outputs = model(inputs)
                loss = criterion(outputs, targets)
                loss.backward()
                optimizer.step()
    common.end_document(args, model, recipe, watch)


if __name__ == "__main__":
    main()
