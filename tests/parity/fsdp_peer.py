#!/usr/bin/env python3
"""Compares `tandem train --shard` with PyTorch's FSDP2 and with one process, in float64.

  fsdp_peer.py TANDEM FOLDER BACKEND RANKS STEPS

An MLP trains with AdamW, clipped gradients and accumulation. Every rank has the same samples in
all programs. Prints the largest relative difference of the final parameters for each kind of
sharding. Needs PyTorch 2.6 or later and NumPy.
"""
import os
import subprocess
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn as nn
import torch.nn.functional as F
from peer import load_safetensors
from torch.utils.data import DistributedSampler

SAMPLES = 96
BATCH = 4
ACCUMULATE = 2
RATE = 1e-2
CLIP = 0.5
SEED = 3


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 48), nn.ReLU(),
                         nn.Linear(48, 10)).double()


def samples():
    torch.manual_seed(1)
    return torch.randn(SAMPLES, 20, dtype=torch.float).double(), torch.randint(0, 10, (SAMPLES,))


def optimize(net, steps, batches_of, clip):
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    x, y = samples()
    for step in range(steps):
        optimizer.zero_grad()
        for batch in batches_of(step):
            (F.cross_entropy(net(x[batch]), y[batch]) / ACCUMULATE).backward()
        clip(net.parameters(), CLIP)
        optimizer.step()


def batches(step, rank, ranks):
    """The micro-batches of a rank in a step. They get the samples of the step in turn."""
    sampler = DistributedSampler(range(SAMPLES), num_replicas=ranks, rank=rank, seed=SEED)
    in_step = BATCH * ACCUMULATE
    per_epoch = SAMPLES // ranks // in_step
    sampler.set_epoch(step // per_epoch)
    first = step % per_epoch * in_step
    mine = list(sampler)[first:first + in_step]
    return [mine[i::ACCUMULATE] for i in range(ACCUMULATE)]


def fsdp_rank(rank, ranks, steps, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    net = make_net()
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)

    def clip(parameters, limit):
        torch.nn.utils.clip_grad_norm_(parameters, limit)

    optimize(net, steps, lambda step: batches(step, rank, ranks), clip)
    state = {name: p.full_tensor().detach() for name, p in net.named_parameters()}
    if rank == 0:
        torch.save(state, f"{folder}/fsdp.pt")
    dist.destroy_process_group()


def one_process(ranks, steps):
    net = make_net()

    def all_ranks(step):
        parts = [batches(step, rank, ranks) for rank in range(ranks)]
        return [sum((part[i] for part in parts), []) for i in range(ACCUMULATE)]

    optimize(net, steps, all_ranks, torch.nn.utils.clip_grad_norm_)
    return {name: p.detach() for name, p in net.named_parameters()}


def write(folder):
    x, y = samples()
    net = make_net()
    program = torch.export.export(net, (x[:3],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, f"{folder}/net.pt2")
    os.makedirs(f"{folder}/data", exist_ok=True)
    for part in ("train", "test"):
        np.save(f"{folder}/data/{part}_x.npy", x.float().numpy())
        np.save(f"{folder}/data/{part}_y.npy", y.numpy())


def tandem_parameters(tandem, folder, backend, ranks, steps, shard):
    out = f"{folder}/{shard}"
    per_epoch = SAMPLES // (ranks * BATCH * ACCUMULATE)
    command = [tandem, "train", "--model", f"{folder}/net.pt2", "--data", f"{folder}/data", "--mean", "0",
               "--std", "1", "--precision", "fp64", "--optimizer", "adamw", "--lr", str(RATE),
               "--clip-norm", str(CLIP), "--batch-size", str(BATCH), "--accumulate", str(ACCUMULATE),
               "--epochs", str(steps // per_epoch), "--seed", str(SEED), "--nproc", str(ranks),
               "--backend", backend, "--shard", shard, "--bucket-bytes", "9000", "--eval-every", "100",
               "--out", out]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    newest = f"{out}/checkpoints/{sorted(os.listdir(f'{out}/checkpoints'))[-1]}"
    index = f"{newest}/model.safetensors.index.json"
    return load_safetensors(index if os.path.exists(index) else f"{newest}/model.safetensors")


def difference(found, expected):
    return max(((found[name] - value).abs().max() / value.abs().max()).item() for name, value in expected.items())


def main():
    tandem, folder, backend = sys.argv[1:4]
    ranks, steps = int(sys.argv[4]), int(sys.argv[5])
    write(folder)
    torch.multiprocessing.spawn(fsdp_rank, (ranks, steps, folder), nprocs=ranks)
    fsdp = torch.load(f"{folder}/fsdp.pt")
    alone = one_process(ranks, steps)
    print(f"FSDP2 and one process: {difference(fsdp, alone):.1e}")
    worst = 0
    for shard in ("none", "optimizer", "gradients", "parameters"):
        found = tandem_parameters(tandem, folder, backend, ranks, steps, shard)
        to_fsdp, to_one = difference(found, fsdp), difference(found, alone)
        worst = max(worst, to_fsdp, to_one)
        print(f"--shard {shard} over {backend}: {to_fsdp:.1e} from FSDP2, {to_one:.1e} from one process")
    print(f"largest: {worst:.1e}")
    sys.exit(0 if worst < 1e-12 else 1)


if __name__ == "__main__":
    main()
