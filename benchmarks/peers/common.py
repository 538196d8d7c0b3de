"""What the PyTorch peers share: MNIST, quantiles, the line they print.

Imports nothing that reads thread settings: call limit_threads() before torch is
imported, since BLAS reads its number of threads when it is loaded.
"""
import argparse
import contextlib
import gzip
import importlib.util
import json
import os
import shutil
import socket
import statistics
import tempfile

FILES = [f"{part}-{what}" for part in ("train", "t10k")
         for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]


def limit_threads(threads):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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


def mnist(root, recipe):
    """The training part through PIL, ToTensor and Normalize, as PyTorch's own
    MNIST example reads it."""
    from torchvision import datasets, transforms
    steps = [transforms.Pad(recipe.pad)] if recipe.pad else []
    steps.append(transforms.ToTensor())
    if recipe.std != 1:
        steps.append(transforms.Normalize((recipe.mean,), (recipe.std,)))
    return datasets.MNIST(root, train=True, transform=transforms.Compose(steps))


def read_idx(folder, name):
    """An IDX file of bytes, gzip or plain, as a tensor; without torchvision."""
    import torch
    path = os.path.join(folder, name)
    packed = not os.path.exists(path)
    with (gzip.open(path + ".gz") if packed else open(path, "rb")) as file:
        raw = bytearray(file.read())
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(raw, dtype=torch.uint8, offset=4 + 4 * raw[3]).view(dims)


def read_part(folder, part):
    """(pixels, labels) of "train" or "t10k"."""
    return (read_idx(folder, f"{part}-images-idx3-ubyte"),
            read_idx(folder, f"{part}-labels-idx1-ubyte").long())


def batch_of(pixels, labels, order, recipe):
    """Samples of the given order, normalised."""
    images = pixels[order].unsqueeze(1).float().div_(255)
    return images.sub_(recipe.mean).div_(recipe.std), labels[order]


def document_arguments(epochs):
    """The arguments of a document's program (documents/)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="folder of MNIST's files")
    parser.add_argument("--save-init", required=True,
                        help="where the initial state dict goes")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--limit", type=int, default=0, help="first samples only")
    return parser.parse_args()


def document_dataset(args, part, recipe):
    """What torchvision's MNIST gives with ToTensor and Normalize, as a data set."""
    from torch.utils.data import TensorDataset
    pixels, labels = read_part(args.data, part)
    first = slice(args.limit or None)
    return TensorDataset(*batch_of(pixels, labels, first, recipe))


def say(line):
    """Prints a line by one write: ranks share an output."""
    os.write(1, (line + "\n").encode())


def float64_from(model, path):
    """The model in float64. With a path its weights, which PyTorch drew in float32,
    are saved first."""
    import torch
    if path:
        torch.save(model.state_dict(), path)
    return model.double()


def run_document_ranks(train, world_size, args):
    """train(rank, world_size, args) in processes of their own, as the documents'
    programs and launchers start them, each on one thread. Exits 1 when one fails."""
    import multiprocessing
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                      GLOO_SOCKET_IFNAME="lo")
    processes = [multiprocessing.Process(target=train, args=(rank, world_size, args))
                 for rank in range(world_size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(1)


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
    fields["torch"] = torch.__version__
    if importlib.util.find_spec("torchvision"):
        import torchvision
        fields["torchvision"] = torchvision.__version__
    print(json.dumps(fields), flush=True)
