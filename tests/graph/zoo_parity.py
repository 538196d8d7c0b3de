"""Trains networks of torchvision or timm with tandem and PyTorch.

Draws networks by seed, the smaller ones of each library, and exports each with small images. Prints one
line per network: trained, refused, skipped (if PyTorch cannot train or export it) or WRONG. Exits with 1
if a network is WRONG. Needs the newest torch, torchvision and timm.

Without --random: rates of random layers are 0. PyTorch and `tandem train` train for 3 steps in float64,
and the script compares the losses: they agree to 1e-9, or to 10 times the difference that a change of the
images by 1e-15 causes in PyTorch.
With --random: random layers are as the library makes them, with a rate of 0.1 where it has an argument
for one. On 1, 2 and 3 ranks, `tandem train` trains twice and once with a resume after the second step;
hashes of the weights are equal. Losses on 2 and 3 ranks equal those on 1 rank, because each sample has
the same draws at any rank (networks with batch norm share their statistics).

  zoo_parity.py TANDEM FOLDER torchvision|timm [--random] [--count N] [--seed N] [NAME...]
"""
import argparse
import copy
import json
import os
import random
import shutil
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from nn_parity import run

warnings.filterwarnings("ignore")
STEPS, BATCH, CLASSES, RATE = 3, 6, 4, 0.001
MOST_PARAMETERS = 45e6


def torchvision_network(name, rate, size):
    from torchvision import models

    options = {"num_classes": CLASSES, "weights": None}
    if name in ("googlenet", "inception_v3"):
        options.update(aux_logits=False, init_weights=False)
    for more in ({"image_size": size}, {"input_size": (size, size)}, {}):
        try:
            net = models.get_model(name, **options, **more)
            break
        except (TypeError, ValueError):
            pass
    if rate == 0:
        for layer in net.modules():
            if type(layer).__name__ == "StochasticDepth" or isinstance(layer, torch.nn.modules.dropout._DropoutNd):
                layer.p = 0.0
            for rate_of in ("dropout", "attention_dropout", "drop_rate"):
                if isinstance(getattr(layer, rate_of, None), float):
                    setattr(layer, rate_of, 0.0)
    return net


def timm_network(name, rate, size):
    import timm

    for more in ({"img_size": size}, {}):
        for rates in ({"drop_rate": rate, "drop_path_rate": rate}, {"drop_rate": rate}, {}):
            try:
                return timm.create_model(name, num_classes=CLASSES, **rates, **more)
            except (TypeError, AssertionError, ValueError):
                pass
    raise ValueError("no arguments fit")


def draw(library, count, seed):
    chosen = random.Random(seed)
    if library == "torchvision":
        from torchvision import models

        def size(name):
            return models.get_model_weights(name).DEFAULT.meta["num_params"]

        names = [name for name in models.list_models(module=models) if size(name) < 2 * MOST_PARAMETERS]
        return sorted(chosen.sample(names, min(count, len(names))))
    import timm

    names = []
    for module in chosen.sample(timm.list_modules(), len(timm.list_modules())):
        family = timm.list_models(module=module)
        sizes = []
        for name in chosen.sample(family, min(8, len(family))):
            try:
                with torch.device("meta"):
                    sizes.append((parameters(timm.create_model(name)), name))
            except Exception:
                continue
        if sizes and min(sizes)[0] < MOST_PARAMETERS:
            names.append(min(sizes)[1])
        if len(names) == count:
            break
    return sorted(names)


def parameters(net):
    return sum(p.numel() for p in net.parameters())


def losses_of_torch(net, x, y):
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make_network(library, name, rate, dtype):
    """Returns the network and images of the smallest size that it accepts."""
    make = torchvision_network if library == "torchvision" else timm_network
    error = None
    for size in (64, 96, 128, 192, 224, 256):
        try:
            torch.manual_seed(0)
            torch.set_default_dtype(torch.float32)
            net = make(name, rate, size).to(dtype).train()
            torch.set_default_dtype(dtype)
            x = torch.randn(BATCH, 3, size, size).float().to(dtype)
            y = torch.randint(0, CLASSES, (BATCH,))
            if not torch.is_tensor(net(x)):
                raise ValueError("the output is not a tensor")
            # Statistics of that forward are in the file, and PyTorch continues from them, too.
            return net, x, y
        except Exception as e:
            error = e
    raise error


def write(folder, net, x, y):
    program = torch.export.export(net, (x[:3],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, os.path.join(folder, "net.pt2"))
    os.makedirs(os.path.join(folder, "data"))
    for part in ("train", "test"):
        np.save(f"{folder}/data/{part}_x.npy", x.float().numpy())
        np.save(f"{folder}/data/{part}_y.npy", y.numpy())


def train(tandem, folder, name, ranks, *more):
    """Returns the summary and the training loss of each step, or None and an error."""
    out = os.path.join(folder, name)
    done = run(tandem, "train", "--model", f"{folder}/net.pt2", "--data", f"{folder}/data", "--mean", "0", "--std", "1",
               "--optimizer", "sgd", "--lr", str(RATE), "--batch-size", str(BATCH // ranks), "--nproc", str(ranks), "--seed", "1", "--log-every", "1", "--out", out, *more)
    if done.returncode != 0:
        return None, (done.stderr.strip() or "no text").splitlines()[-1][:300]
    with open(os.path.join(out, "summary.json")) as file:
        summary = json.load(file)
    with open(os.path.join(out, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    return summary, [line["loss"] for line in lines if line["kind"] == "train"]


def check_losses(tandem, folder, library, name):
    try:
        net, x, y = make_network(library, name, 0.0, torch.float64)
        write(folder, net, x, y)
        again = copy.deepcopy(net)
        expected = losses_of_torch(net, x, y)
    except Exception as error:
        return "skipped", (str(error).splitlines() or [type(error).__name__])[0][:150]
    summary, found = train(tandem, folder, "run", 1, "--precision", "fp64", "--epochs", str(STEPS))
    if summary is None:
        return "refused", found
    if len(found) != STEPS:
        return "WRONG", f"{len(found)} losses"
    worst = difference(found, expected)
    text = f"{worst:.1e} {tuple(x.shape)} {parameters(net) / 1e6:.1f}M"
    if worst < 1e-9:
        return "trained", text
    changed = difference(losses_of_torch(again, x * (1 + 1e-15), y), expected)
    return ("trained" if worst < 10 * changed else "WRONG"), text + f", PyTorch with another rounding: {changed:.1e}"


def difference(found, expected):
    return max(abs(a - b) / (1 + abs(b)) for a, b in zip(found, expected))


def check_random(tandem, folder, library, name):
    result, text = check_random_in("fp32", tandem, folder, library, name)
    if result == "WRONG":
        # Differences of rounding may have grown.
        result, text = check_random_in("fp64", tandem, folder, library, name)
    return result, text


def check_random_in(precision, tandem, folder, library, name):
    try:
        net, x, y = make_network(library, name, 0.1, torch.float32 if precision == "fp32" else torch.float64)
        shutil.rmtree(folder)
        os.makedirs(folder)
        write(folder, net, x, y)
    except Exception as error:
        return "skipped", (str(error).splitlines() or [type(error).__name__])[0][:150]
    expected, worst = None, 0.0
    for ranks in (1, 2, 3):
        options = ["--buffers", "sync", "--threads", "1", "--precision", precision]
        runs = []
        for run_name in ("first", "second", "resumed"):
            more = options + ["--epochs", str(STEPS)]
            out = f"{run_name}-{ranks}"
            if run_name == "resumed":
                summary, found = train(tandem, folder, out, ranks, *options, "--epochs", str(STEPS - 1))
                if summary is None:
                    return "refused", found
                more += ["--resume", "auto"]
            summary, found = train(tandem, folder, out, ranks, *more)
            if summary is None:
                return "refused", found
            runs.append((summary["parameters_sha256"], found))
            shutil.rmtree(os.path.join(folder, out))
        if len({sha for sha, _ in runs}) != 1:
            return "WRONG", f"hashes on {ranks} ranks: {[sha[:8] for sha, _ in runs]}"
        expected = expected or runs[0][1]
        worst = max([worst] + [abs(a - b) for a, b in zip(runs[0][1], expected)])
    return ("trained" if worst < 1e-3 else "WRONG"), f"losses in {precision} differ by {worst:.1e} {expected[-1]:.4f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tandem")
    parser.add_argument("folder")
    parser.add_argument("library", choices=("torchvision", "timm"))
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    counts = {}
    check = check_random if options.random else check_losses
    for name in options.names or draw(options.library, options.count, options.seed):
        place = os.path.join(options.folder, name)
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        result, text = check(options.tandem, place, options.library, name)
        shutil.rmtree(place, ignore_errors=True)
        counts[result] = counts.get(result, 0) + 1
        print(f"{result:8} {name:40} {text}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    sys.exit(1 if counts.get("WRONG") else 0)


if __name__ == "__main__":
    main()
