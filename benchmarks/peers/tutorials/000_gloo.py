#!/usr/bin/python3
"""Tutorial 000, second program, written after it: machines x processes over Gloo, on one
machine.

Differences: MNIST is not downloaded, the model is that of models.py with the same layers,
address and port come from the environment (default port: a free one, not 8892), and the
program ends with a test.

usage: 000_gloo.py --data FOLDER [--nproc 2] [--epochs 1] [--limit N]
"""
import os
import pathlib
import sys
import tempfile
import time
import warnings

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import models  # noqa: E402

common.limit_threads(1)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch.optim as optim  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402

# Dropout2d of vectors, as in the tutorial.
warnings.filterwarnings("ignore", message="dropout2d")


def train(rank, args):
    dist.init_process_group(backend='gloo', init_method='env://', world_size=args.nproc,
                            rank=rank)
    torch.manual_seed(0)
    watch = common.Stopwatch()
    recipe = models.RECIPES["convnet"]
    train_dataset = common.tutorial_dataset(args, "train", recipe)
    train_sampler = DistributedSampler(train_dataset, num_replicas=args.nproc, rank=rank)
    train_dataloader = DataLoader(dataset=train_dataset, batch_size=128, shuffle=False,
                                  num_workers=0, sampler=train_sampler)
    model = models.make_model("convnet")
    optimizer = optim.Adadelta(model.parameters(), lr=0.5)
    model = nn.parallel.DistributedDataParallel(model)
    model.train()
    for epoch in range(args.epochs):
        with watch:
            train_epoch(model, train_dataloader, optimizer, epoch, rank)
    if rank == 0:
        torch.save((model.module.state_dict(), watch.seconds), args.trained)


def train_epoch(model, train_dataloader, optimizer, epoch, cpu_num):
    for b_i, (X, y) in enumerate(train_dataloader):
        pred_prob = model(X)
        loss = F.nll_loss(pred_prob, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if b_i % 10 == 0 and cpu_num == 0:
            common.say('epoch: {} [{}/{} ({:.0f}%)]\t training loss: {:.6f}'.format(
                epoch, b_i, len(train_dataloader),
                100. * b_i / len(train_dataloader), loss.item()))


def main():
    args = common.tutorial_arguments(epochs=1, ranks=2)
    os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    os.environ.setdefault('MASTER_PORT', str(common.free_port()))
    os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')
    with tempfile.TemporaryDirectory() as folder:
        args.trained = os.path.join(folder, "trained.pt")
        start = time.time()
        mp.spawn(train, nprocs=args.nproc, args=(args,))
        common.say(f"Finished training in {time.time()-start} secs")
        state, seconds = torch.load(args.trained)
    # The tutorial has no test, so the test comes after the tutorial's last line.
    model = models.make_model("convnet")
    model.load_state_dict(state)
    watch = common.Stopwatch()
    watch.seconds = seconds
    common.end_tutorial(args, model, models.RECIPES["convnet"], watch)


if __name__ == "__main__":
    main()
