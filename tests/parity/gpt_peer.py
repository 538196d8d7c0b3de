#!/usr/bin/env python3
"""PyTorch's side of tests/program/text_parity_test.cpp: nanoGPT's network and training loop.

usage: gpt_peer.py export FILE.pt2 [SIZE...]
       gpt_peer.py train TEXT STEPS SEED... [SIZE...]
       gpt_peer.py evaluate TEXT NETWORK... [SIZE...]

A SIZE is NAME=NUMBER for a field of the class Sizes. Reads the bytes of a text like `tandem
train --data TEXT.txt`: the last tenth is the test part, and each sample of a step starts at
a random byte. `train` prints JSON: for each seed the mean loss of the last tenth of the
steps, and the loss of the test part. `evaluate` prints the loss of the test part for each
network, a file of torch.export or ONNX.
"""
import dataclasses
import json
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Sizes:
    """The sizes of nanoGPT's recipe for a CPU, with bytes as symbols."""
    layers: int = 4
    width: int = 128
    heads: int = 4
    block: int = 64
    batch: int = 12
    symbols: int = 256
    # 1: the last layer has the weights of the embedding of symbols.
    tied: int = 1


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.heads = sizes.heads
        self.c_attn = nn.Linear(sizes.width, 3 * sizes.width, bias=False)
        self.c_proj = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x):
        samples, positions, width = x.shape
        split = lambda y: y.view(samples, positions, self.heads, -1).transpose(1, 2)
        q, k, v = (split(y) for y in self.c_attn(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(samples, positions, width))


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.ln_1 = nn.LayerNorm(sizes.width, bias=False)
        self.attn = Attention(sizes)
        self.ln_2 = nn.LayerNorm(sizes.width, bias=False)
        self.c_fc = nn.Linear(sizes.width, 4 * sizes.width, bias=False)
        self.c_proj = nn.Linear(4 * sizes.width, sizes.width, bias=False)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    """Maps samples x positions to samples x positions x symbols."""

    def __init__(self, sizes, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.wte = nn.Embedding(sizes.symbols, sizes.width)
        self.wpe = nn.Embedding(sizes.block, sizes.width)
        self.h = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.width, bias=False)
        self.lm_head = nn.Linear(sizes.width, sizes.symbols, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                std = 0.02
                if name.endswith("c_proj.weight"):
                    std /= math.sqrt(2 * sizes.layers)
                nn.init.normal_(parameter, std=std)
        if sizes.tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, index):
        positions = torch.arange(index.shape[1], device=index.device)
        x = self.wte(index) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def export(path, sizes):
    example = torch.zeros(2, sizes.block, dtype=torch.int64)
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        GPT(sizes, 1), (example,), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)


def loss_of(model, x, y, reduction="mean"):
    logits = model(x)
    return F.cross_entropy(
        logits.view(-1, logits.size(-1)), y.reshape(-1), reduction=reduction)


def parts_of(text, sizes):
    """Returns the training part and the test part, which has a tenth of the samples. Each
    part has one byte more than its samples, the last target."""
    samples = (len(text) - 1) // sizes.block
    first = (samples - round(samples / 10)) * sizes.block
    return text[:first + 1], text[first:]


def evaluate(model, text, sizes):
    """Returns the mean loss over all samples, which do not overlap."""
    count = (len(text) - 1) // sizes.block
    x = text[:count * sizes.block].view(count, -1)
    y = text[1:count * sizes.block + 1].view(count, -1)
    with torch.no_grad():
        total = sum(
            loss_of(model, *both, reduction="sum").item()
            for both in zip(x.split(256), y.split(256)))
    return total / y.numel()


def load(path):
    if path.endswith(".pt2"):
        return torch.export.load(path).module()
    import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def train(text, steps, seed, sizes):
    training, test = parts_of(text, sizes)
    model = GPT(sizes, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    window = torch.arange(sizes.block)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(training) - sizes.block, (sizes.batch, 1))
        loss = loss_of(model, training[starts + window], training[starts + window + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    last = losses[-(steps // 10):]
    return {"train": sum(last) / len(last), "test": evaluate(model, test, sizes)}


def read(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()


def main():
    action, path, *words = sys.argv[1:]
    sizes = Sizes(**{
        name: int(value) for name, value in (word.split("=") for word in words if "=" in word)})
    words = [word for word in words if "=" not in word]
    if action == "export":
        export(path, sizes)
    elif action == "train":
        steps, *seeds = map(int, words)
        print(json.dumps([train(read(path), steps, seed, sizes) for seed in seeds]))
    else:
        test = parts_of(read(path), sizes)[1]
        print(json.dumps([evaluate(load(network), test, sizes) for network in words]))


main()
