#!/usr/bin/env python3
"""Loads tandem's weights into a network of networks.py, and evaluates it.

usage: check_state.py NETWORK WEIGHTS [DATA]

WEIGHTS: .safetensors or .pt, with exactly the names of the network's state_dict().
DATA: a .safetensors file with `images` and `labels`, or a folder with MNIST's test files or
with CIFAR-10's test_batch.bin. MNIST's usual mean and standard deviation normalize the
images of a folder. The default is the batches 0 to 49 of networks.samples().

Prints {"loss": mean cross entropy, "correct": number, "samples": number} as JSON.
"""
import argparse
import json
import os
import sys

import torch
import torch.nn.functional as F

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(FOLDER, "..", "parity"))
import networks  # noqa: E402
import peer  # noqa: E402


def read_cifar(path):
    with open(path, "rb") as file:
        rows = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(-1, 3073)
    images = rows[:, 1:].view(-1, 3, 32, 32).float().div(255)
    return images.sub(0.1307).div(0.3081), rows[:, 0].long()


def load_data(path, network):
    if not path:
        batches = [networks.samples(network.shape, network.classes, step)
                   for step in range(50)]
        return tuple(torch.cat(parts) for parts in zip(*batches))
    if not os.path.isdir(path):
        tensors = peer.load_safetensors(path)
        return tensors["images"], tensors["labels"].long()
    cifar = os.path.join(path, "test_batch.bin")
    return read_cifar(cifar) if os.path.exists(cifar) else peer.read_images(path, "t10k")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("network", choices=[*networks.NETWORKS, "net"])
    parser.add_argument("weights")
    parser.add_argument("data", nargs="?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    weights = peer.load_weights(arguments.weights)
    if arguments.network == "net":
        network = networks.Network(None, (1, 28, 28), 10)
        model = networks.Net()
    else:
        network = networks.NETWORKS[arguments.network]
        model = networks.make_network(arguments.network)
    dtype = next(tensor.dtype for tensor in weights.values() if tensor.is_floating_point())
    model = model.to(dtype).eval()
    model.load_state_dict(weights, strict=True)
    images, labels = load_data(arguments.data, network)
    with torch.no_grad():
        output = torch.cat([model(part) for part in images.to(dtype).split(500)])
    print(json.dumps({"loss": F.cross_entropy(output, labels).item(),
                      "correct": int(output.argmax(dim=1).eq(labels).sum()),
                      "samples": len(labels)}))


if __name__ == "__main__":
    main()
