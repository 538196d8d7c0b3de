#!/usr/bin/python3
"""Tutorial 001, second program, written after it: processes train one model in shared
memory, without locks.

Differences: data_load.py and the break of the loop are made up, the number of processes is
a flag, and the program ends with a test. As in the tutorial, a process divides its loss and
accuracy by the size of the whole data set; --epoch-mean shard divides by the samples that
the process read.

usage: 001_hogwild.py --data FOLDER [--nproc 2] [--epochs 20] [--limit N]
                      [--epoch-mean dataset|shard]
"""
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import sgd_001  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402


def train(model, data_loader, rank, args, seconds):
    watch = common.Stopwatch()
    size = len(data_loader.sampler) if args.epoch_mean == "shard" else None
    sgd_001.train(model, data_loader, args.epochs, rank, watch, size)
    seconds[rank] = watch.seconds


def main():
    args = common.tutorial_arguments(epochs=20, ranks=2, epoch_mean=True)
    train_data = common.tutorial_dataset(args, "train", sgd_001.RECIPE)
    num_processes = args.nproc
    start = time.time()
    model = sgd_001.make_net()
    model.share_memory()
    seconds = mp.Array("d", num_processes)
    processes = []
    for rank in range(num_processes):
        data_loader = DataLoader(
            dataset=train_data,
            sampler=DistributedSampler(dataset=train_data, num_replicas=num_processes,
                                       rank=rank),
            batch_size=32)
        p = mp.Process(target=train, args=(model, data_loader, rank, args, seconds))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
    end = time.time() - start
    common.say(f'Time taken: {end/60} minutes')
    watch = common.Stopwatch()
    watch.seconds = max(seconds)
    common.end_tutorial(args, model, sgd_001.RECIPE, watch)


if __name__ == "__main__":
    main()
