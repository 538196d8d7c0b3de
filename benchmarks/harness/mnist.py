"""Finds the folder of MNIST's four IDX files."""
import os

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def has_files(folder):
    path = os.path.join(folder, "train-images-idx3-ubyte")
    return os.path.exists(path) or os.path.exists(path + ".gz")


def add_argument(parser):
    parser.add_argument("--data", help="folder of MNIST's IDX files (default: TANDEM_DATA)")


def find(parser, given):
    """Returns the given folder, or TANDEM_DATA, or ../shared/data of the project. Exits if
    none has MNIST."""
    roots = [given] if given else [os.environ.get("TANDEM_DATA"),
                                   os.path.join(ROOT, "..", "shared", "data")]
    for root in filter(None, roots):
        for folder in (root, os.path.join(root, "mnist")):
            if has_files(folder):
                return os.path.realpath(folder)
    if given:
        parser.error(f"--data is {given}, which has no train-images-idx3-ubyte; set it to the "
                     "folder of MNIST's IDX files")
    parser.error("MNIST is missing; set TANDEM_DATA or --data to the folder of its IDX files")
