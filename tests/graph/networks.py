"""Narrow networks of the kinds that people train, for the tests of imported networks.

Every network has a fixed seed, and works with PyTorch 1.13 and later.
"""
import collections
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    """Two convolutions and a skip connection. Names of layers as in torchvision."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += skip
        return self.relu(x)


class ResNet18(nn.Module):
    """ResNet-18 with the stem for 32 x 32 pixels: a 3 x 3 convolution, no pooling."""

    def __init__(self, width, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Block(width, width, 1), Block(width, width, 1))
        self.layer2 = nn.Sequential(
            Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1))
        self.layer3 = nn.Sequential(
            Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width, 1))
        self.layer4 = nn.Sequential(
            Block(4 * width, 8 * width, 2), Block(8 * width, 8 * width, 1))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)


class Residual(nn.Module):
    """A convolutional network with two skip connections."""

    def __init__(self, width=4, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.first = nn.Sequential(
            nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        self.second = nn.Sequential(
            nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1))
        self.skip = nn.Conv2d(width, 2 * width, 1, 2)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        x = x + self.first(x)
        x = self.skip(x) + self.second(x)
        return self.head(x.mean(dim=(2, 3)))


def attention(query, key, value):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(query, key, value)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return torch.softmax(scores, -1) @ value


class TransformerBlock(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.projection = nn.Linear(size, size)
        self.norm2 = nn.LayerNorm(size)
        self.mlp = nn.Sequential(
            nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size),
            nn.Dropout(0.0))

    def attend(self, x):
        samples, tokens, size = x.shape
        query, key, value = (
            part.view(samples, tokens, self.heads, size // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1))
        x = attention(query, key, value)
        return self.projection(x.transpose(1, 2).reshape(samples, tokens, size))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A pre-norm transformer on patches of 4 x 4 pixels and a class token.

    Has a buffer that is not in the state_dict.
    """

    def __init__(self, size=8, heads=2, blocks=2, side=16, classes=5):
        super().__init__()
        patches = (side // 4) ** 2
        self.patch = nn.Conv2d(3, size, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, size))
        self.position = nn.Parameter(torch.randn(1, patches + 1, size))
        wave = torch.sin(torch.arange(patches).view(1, -1, 1) * torch.ones(1, 1, size))
        self.register_buffer("wave", wave, persistent=False)
        self.blocks = nn.Sequential(
            *[TransformerBlock(size, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.wave
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.blocks(x + self.position)
        return self.head(self.norm(x)[:, 0])


class Branches(nn.Module):
    """Parallel branches, concatenated, with group norm."""

    def __init__(self, width=4, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.narrow = nn.Conv2d(width, width, 1)
        self.wide = nn.Sequential(
            nn.Conv2d(width, width, 1), nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1))
        self.pooled = nn.Sequential(
            nn.AvgPool2d(3, 1, 1), nn.Conv2d(width, width, 1))
        self.norm_all = nn.GroupNorm(3, 3 * width)
        self.head = nn.Linear(3 * width * 16, classes)

    def forward(self, x):
        x = F.silu(self.norm(self.stem(x)))
        x = torch.cat([self.narrow(x), self.wide(x), self.pooled(x)], 1)
        x = F.adaptive_avg_pool2d(F.silu(self.norm_all(x)), (4, 4))
        return self.head(x.view(x.size(0), -1))


class Depthwise(nn.Module):
    """Inverted bottlenecks with depthwise convolutions."""

    def __init__(self, width=4, classes=5):
        super().__init__()

        def layer(inputs, outputs, kernel, stride, groups, activation):
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups,
                          bias=False),
                nn.BatchNorm2d(outputs), activation)

        self.stem = layer(3, width, 3, 2, 1, nn.Hardswish())
        self.expand = layer(width, 3 * width, 1, 1, 1, nn.ReLU6())
        self.depthwise = layer(3 * width, 3 * width, 3, 1, 3 * width, nn.ReLU6(True))
        self.project = layer(3 * width, width, 1, 1, 1, nn.Identity())
        self.grouped = layer(width, 2 * width, 5, 2, 2, nn.Hardswish(True))
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.project(self.depthwise(self.expand(x)))
        x = self.grouped(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Tied(nn.Module):
    """Weights with two names, a layer with two names, and a weight used transposed."""

    def __init__(self, size=6, classes=5):
        super().__init__()
        self.encode = nn.Linear(64, size)
        self.hidden = nn.Linear(size, size)
        self.again = nn.Linear(size, size)
        self.again.weight = self.hidden.weight
        self.last = self.again
        self.head = nn.Linear(size, classes)

    def forward(self, x):
        x = x.flatten(1)
        code = torch.tanh(self.encode(x))
        x = x - F.linear(code, self.encode.weight.t())
        x = torch.tanh(self.hidden(torch.tanh(self.encode(x))))
        x = torch.tanh(self.again(x)) + torch.sigmoid(self.last(code))
        return self.head(x)


class Net(nn.Module):
    """The network of tutorial 003."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        x = self.fc2(self.dropout2(x))
        return F.log_softmax(x, dim=1)


# `shape`: of a sample.
Network = collections.namedtuple("Network", "make shape classes")
NETWORKS = {
    "residual": Network(Residual, (3, 16, 16), 5),
    "resnet18": Network(lambda: ResNet18(2), (3, 32, 32), 10),
    "transformer": Network(Transformer, (3, 16, 16), 5),
    "branches": Network(Branches, (3, 8, 8), 5),
    "depthwise": Network(Depthwise, (3, 16, 16), 5),
    "tied": Network(Tied, (1, 8, 8), 5),
}


def make_network(name, seed=1):
    """Returns the network in float64, with weights and statistics that differ from 0
    and 1."""
    torch.manual_seed(seed)
    model = NETWORKS[name].make().double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("running_mean"):
                buffer.normal_(0, 0.1)
            elif buffer_name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


def samples(shape, classes, step, count=6):
    """Returns a batch and its labels, by a formula that C++ repeats."""
    index = torch.arange(count * math.prod(shape), dtype=torch.int64)
    images = ((index * 7919 + step * 104729) % 1000).double() / 1000 - 0.5
    labels = (torch.arange(count) * 7 + step) % classes
    return images.view(count, *shape), labels
