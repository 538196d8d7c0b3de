#!/usr/bin/python3
"""Tutorial 001, first program, written after it: parallel SGD over MPI.

The parts that its listing leaves out are made up: data_load.py, batch size and shuffling,
the break of the loop, and the average of the gathered parameters, which is tested. Needs
Debian's python3-mpi4py.

usage: mpirun -np N 001_mpi.py --data FOLDER [--epochs 20] [--limit N]
"""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import common  # noqa: E402
import sgd_001  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader, Subset, random_split  # noqa: E402

try:
    from mpi4py import MPI
except ImportError:
    sys.exit("001_mpi.py: no mpi4py; apt-get install python3-mpi4py")


def split(dataset, size):
    lengths = [len(dataset)//size]*size
    return random_split(Subset(dataset, range(sum(lengths))), lengths)


def main():
    args = common.tutorial_arguments(epochs=20)
    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    size = comm.Get_size()
    start = MPI.Wtime()
    torch.manual_seed(sgd_001.SEED)
    train_data = None
    if rank == 0:
        train_data = common.tutorial_dataset(args, "train", sgd_001.RECIPE)
    if size > 1:
        train_data = comm.scatter(split(train_data, size) if rank == 0 else None, root=0)
    train_iterator = DataLoader(train_data, batch_size=32, shuffle=True)

    model = sgd_001.make_net()
    state_dict = {}
    if rank == 0:
        for name, param in model.named_parameters():
            state_dict[name] = param.detach().numpy()
    state_dicts = comm.bcast(state_dict, root=0)
    if rank != 0:
        for name, param in model.named_parameters():
            model.state_dict()[name][:] = torch.Tensor(state_dicts[name])

    watch = common.Stopwatch()
    sgd_001.train(model, train_iterator, args.epochs, rank, watch)

    state_dict = {}
    for name, param in model.named_parameters():
        state_dict[name] = param.detach().numpy()
    gathered = comm.gather(state_dict, root=0)
    if rank != 0:
        return
    for name, param in model.named_parameters():
        mean = sum(torch.tensor(one[name]) for one in gathered) / size
        model.state_dict()[name][:] = mean
    common.say(f"Total Time taken by {rank} : {(MPI.Wtime() - start) / 60:.2f} minutes")
    common.end_tutorial(args, model, sgd_001.RECIPE, watch)


if __name__ == "__main__":
    main()
