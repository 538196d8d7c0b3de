"""Where MNIST's four IDX files are."""
import os

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def has_files(folder):
    path = os.path.join(folder, "train-images-idx3-ubyte")
    return os.path.exists(path) or os.path.exists(path + ".gz")


def add_argument(parser):
    parser.add_argument("--data", help="folder of MNIST's IDX files; default TANDEM_DATA")


def find(parser, given):
    """The folder given, or what TANDEM_DATA names, or the one beside the project; ends
    the program when there is none."""
    roots = [given] if given else [os.environ.get("TANDEM_DATA"),
                                   os.path.join(ROOT, "..", "shared", "data")]
    for root in filter(None, roots):
        for folder in (root, os.path.join(root, "mnist")):
            if has_files(folder):
                return os.path.realpath(folder)
    if given:
        parser.error(f"{given} has no train-images-idx3-ubyte; name another --data")
    parser.error("no MNIST; set TANDEM_DATA, or --data to the folder of its IDX files")
