"""The common part of the PyTorch programs: MNIST, arguments, quantiles, printed lines.

Importing it imports no torch. Call limit_threads() before torch is imported, since BLAS
reads its number of threads when it is loaded.
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
import time

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
    """A temporary root for torchvision.datasets.MNIST: MNIST/raw with the four files
    unpacked. `folder` holds them, gzip or plain."""
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


def mnist(root, recipe, part="train"):
    """A part by PIL, ToTensor and Normalize, as PyTorch's MNIST example reads it. It is in
    memory, so the root is not needed afterwards."""
    from torchvision import datasets, transforms
    steps = [transforms.Pad(recipe.pad)] if recipe.pad else []
    steps.append(transforms.ToTensor())
    if recipe.std != 1:
        steps.append(transforms.Normalize((recipe.mean,), (recipe.std,)))
    return datasets.MNIST(root, train=part == "train", transform=transforms.Compose(steps))


def step_arguments(description, precisions=("fp32", "bf16")):
    """The argument parser of step.py and step_jax.py, which time steps of net."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--precision", choices=precisions, default="fp32")
    return parser


def read_idx_bytes(folder, name):
    """Reads an IDX file of bytes, gzip or plain. Returns the file's contents, the offset of
    the values, and the dimensions."""
    path = os.path.join(folder, name)
    packed = not os.path.exists(path)
    with (gzip.open(path + ".gz") if packed else open(path, "rb")) as file:
        raw = bytearray(file.read())
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return raw, 4 + 4 * raw[3], dims


def read_idx(folder, name):
    """Reads an IDX file of bytes into a tensor, without torchvision."""
    import torch
    raw, begin, dims = read_idx_bytes(folder, name)
    return torch.frombuffer(raw, dtype=torch.uint8, offset=begin).view(dims)


def read_part(folder, part):
    """(pixels, labels) of "train" or "t10k"."""
    return (read_idx(folder, f"{part}-images-idx3-ubyte"),
            read_idx(folder, f"{part}-labels-idx1-ubyte").long())


def batch_of(pixels, labels, order, recipe):
    """Samples of the given order, normalised."""
    images = pixels[order].unsqueeze(1).float().div_(255)
    return images.sub_(recipe.mean).div_(recipe.std), labels[order]


def tutorial_arguments(epochs, ranks=1, parity=False, device=False, epoch_mean=False):
    """The arguments of a tutorial's program (tutorials/). It runs as the tutorial has it.
    With `parity` it does so only with --as-written, and else as compare.py needs it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="folder of MNIST's files")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--limit", type=int, default=0, help="first samples only")
    parser.add_argument("--nproc", type=int, default=ranks, help="ranks")
    if device:
        parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    if epoch_mean:
        parser.add_argument("--epoch-mean", choices=("dataset", "shard"), default="dataset")
    if parity:
        parser.add_argument("--save-init", help="file for the initial state dict")
        parser.add_argument("--as-written", action="store_true", help=(
            "the tutorial's numbers, dropout and order, MNIST by torchvision, and at the "
            "end a line of JSON for scripts/tutorials"))
    else:
        parser.set_defaults(as_written=True)
    args = parser.parse_args()
    if not args.as_written and not args.save_init:
        parser.error("--save-init or --as-written is missing")
    return args


def node_arguments():
    """The arguments of the two programs of tutorial 004."""
    parser = argparse.ArgumentParser()
    parser.add_argument('-n', '--nodes', default=1, type=int, metavar='N')
    parser.add_argument('-g', '--gpus', default=1, type=int, help='number of gpus per node')
    parser.add_argument('-nr', '--nr', default=0, type=int, help='ranking within the nodes')
    parser.add_argument('--epochs', default=2, type=int, metavar='N',
                        help='number of total epochs to run')
    parser.add_argument("--data", required=True, help="folder of MNIST's files")
    parser.add_argument("--limit", type=int, default=0, help="first samples only")
    parser.set_defaults(as_written=True)
    return parser.parse_args()


def tutorial_dataset(args, part, recipe):
    """MNIST with ToTensor and Normalize: by torchvision with --as-written, else decoded
    beforehand and in float64."""
    from torch.utils.data import Subset, TensorDataset
    if args.as_written:
        with torchvision_root(args.data) as root:
            dataset = mnist(root, recipe, part)
        return Subset(dataset, range(args.limit)) if args.limit else dataset
    pixels, labels = read_part(args.data, part)
    first = slice(args.limit or None)
    images, labels = batch_of(pixels, labels, first, recipe)
    return TensorDataset(images.double(), labels)


def tutorial_model(args, model, first=True):
    """The model itself with --as-written. Otherwise the model in float64 with dropout that
    does nothing, after the first rank saved the weights, which PyTorch drew in float32."""
    import torch
    if args.as_written:
        return model
    if first:
        torch.save(model.state_dict(), args.save_init)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return model.double()


class Stopwatch:
    """Sums the seconds spent under `with`."""

    seconds = 0.0

    def __enter__(self):
        self.start = time.perf_counter()

    def __exit__(self, *failure):
        self.seconds += time.perf_counter() - self.start


def end_tutorial(args, model, recipe, watch, **fields):
    """With --as-written, prints the seconds of training and tests on decoded images, as
    tandem's recipe does at its end, for scripts/tutorials."""
    if not args.as_written:
        return
    import torch
    pixels, labels = read_part(args.data, "t10k")
    first = slice(args.limit or None)
    pixels, labels = pixels[first], labels[first]
    model.eval()
    correct = 0
    with torch.no_grad():
        for order in torch.arange(len(labels)).split(1000):
            images, targets = batch_of(pixels, labels, order, recipe)
            images = torch.nn.functional.pad(images, [recipe.pad] * 4, value=-recipe.mean / recipe.std)
            correct += (model(images).argmax(1) == targets).sum().item()
    report(train_seconds=watch.seconds, test_accuracy=100 * correct / len(labels), **fields)


def say(line):
    """Prints a line by one write: ranks share an output."""
    os.write(1, (line + "\n").encode())


def run_tutorial_ranks(train, args):
    """Runs train(rank, world_size, args) in args.nproc processes with one thread each, as
    the tutorials' launchers do. Exits with 1 if a process fails."""
    import multiprocessing
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                      GLOO_SOCKET_IFNAME="lo")
    processes = [multiprocessing.Process(target=train, args=(rank, args.nproc, args))
                 for rank in range(args.nproc)]
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
