"""Exports small networks of the kinds that people publish, for scripts/check-networks.

  python public_networks.py FOLDER [NAME ...]

Writes FOLDER/NAME.pt2 for each network. Needs PyTorch 2.6 or later. The networks have 5
classes or, for segmentation and language, 5 classes for each pixel or position.
"""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

NETWORKS = {}
IMAGE = (3, 16, 16)


def network(shape, tokens=0):
    """Registers a function that returns a module. `shape` is that of one sample."""

    def register(make):
        NETWORKS[make.__name__] = (make, shape, tokens)
        return make

    return register


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Residual(nn.Module):
    def __init__(self, *layers, after=None):
        super().__init__()
        self.body = nn.Sequential(*layers)
        self.after = after or nn.Identity()

    def forward(self, x):
        return self.after(x + self.body(x))


class Concat(nn.Module):
    def __init__(self, *branches, keep=False):
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.keep = keep

    def forward(self, x):
        return torch.cat(([x] if self.keep else []) + [b(x) for b in self.branches], 1)


class Gate(nn.Module):
    """x times a gate that is computed from x."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x * self.layers(x)


class Last(nn.Module):
    """The output of a recurrent layer at the last position."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0][:, -1]


def conv(inputs, outputs, kernel=3, stride=1, groups=1, act=nn.ReLU, norm=True, dilation=1):
    padding = dilation * (kernel // 2)
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, not norm)]
    layers += [nn.BatchNorm2d(outputs)] if norm else []
    return nn.Sequential(*layers, *([act()] if act else []))


def head(channels):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))


@network((20,))
def mlp():
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5))


@network((20,))
def mlp_residual():
    return nn.Sequential(nn.Linear(20, 32), *[Residual(nn.LayerNorm(32), nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)) for _ in range(3)], nn.Linear(32, 5))


@network((20,))
def mlp_batch_norm():
    return nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ELU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.PReLU(), nn.Linear(32, 5))


@network((20,))
def highway():
    class Highway(nn.Module):
        def __init__(self):
            super().__init__()
            self.h, self.t = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x):
            t = torch.sigmoid(self.t(x))
            return t * torch.relu(self.h(x)) + (1 - t) * x

    return nn.Sequential(nn.Linear(20, 32), Highway(), Highway(), nn.Linear(32, 5))


@network((20,))
def maxout():
    return nn.Sequential(nn.Linear(20, 64), Lambda(lambda x: x.unflatten(1, (32, 2)).amax(2)), nn.Linear(32, 5))


@network((20,))
def mixture_of_experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(20, 4)
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5)) for _ in range(4)])

        def forward(self, x):
            gates = self.gate(x).softmax(-1)
            return (torch.stack([e(x) for e in self.experts], 1) * gates.unsqueeze(-1)).sum(1)

    return Experts()


@network((20,))
def fourier_features():
    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer('b', torch.randn(20, 16))

        def forward(self, x):
            return torch.cat([(x @ self.b).sin(), (x @ self.b).cos()], -1)

    return nn.Sequential(Fourier(), nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 5))


@network((20,))
def self_normalizing():
    return nn.Sequential(nn.Linear(20, 32), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(32, 32), nn.SELU(), nn.Linear(32, 5))


@network((20,))
def bilinear_pair():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.bilinear, self.fc = nn.Bilinear(10, 10, 16), nn.Linear(16, 5)

        def forward(self, x):
            a, b = x.chunk(2, 1)
            return self.fc(torch.relu(self.bilinear(a, b)))

    return Pair()


@network((20,))
def weight_norm():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(20, 32)), nn.ReLU(), nn.Linear(32, 5))


@network((1, 16, 16))
def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 5))


@network(IMAGE)
def vgg():
    layers, inputs = [], 3
    for width in (8, 'M', 16, 16, 'M', 32, 'M'):
        layers += [nn.MaxPool2d(2)] if width == 'M' else [conv(inputs, width, norm=False)]
        inputs = inputs if width == 'M' else width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 5))


@network(IMAGE)
def alexnet():
    return nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.LocalResponseNorm(3), nn.MaxPool2d(3, 2), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(216, 5))


def basic_block(inputs, outputs, stride=1):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = conv(inputs, outputs, 3, stride), conv(outputs, outputs, act=None)
            self.skip = conv(inputs, outputs, 1, stride, act=None) if stride > 1 or inputs != outputs else nn.Identity()

        def forward(self, x):
            return F.relu(self.b(self.a(x)) + self.skip(x))

    return Block()


@network(IMAGE)
def resnet_basic():
    return nn.Sequential(conv(3, 16), basic_block(16, 16), basic_block(16, 32, 2), head(32))


@network(IMAGE)
def wide_resnet():
    return nn.Sequential(conv(3, 16), basic_block(16, 64), basic_block(64, 64), head(64))


@network(IMAGE)
def resnet_bottleneck():
    return nn.Sequential(conv(3, 32), *[Residual(conv(32, 16, 1), conv(16, 16), conv(16, 32, 1, act=None), after=nn.ReLU(True)) for _ in range(2)], head(32))


@network(IMAGE)
def resnext():
    return nn.Sequential(conv(3, 32), Residual(conv(32, 32, 1), conv(32, 32, groups=4), conv(32, 32, 1, act=None), after=nn.ReLU(True)), head(32))


@network(IMAGE)
def resnet_preactivation():
    block = lambda: Residual(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), block(), block(), nn.BatchNorm2d(16), nn.ReLU(), head(16))


def squeeze(channels):
    return Gate(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels // 4, 1), nn.ReLU(), nn.Conv2d(channels // 4, channels, 1), nn.Sigmoid())


@network(IMAGE)
def resnet_squeeze_excite():
    return nn.Sequential(conv(3, 16), Residual(conv(16, 16), conv(16, 16, act=None), squeeze(16), after=nn.ReLU()), head(16))


@network(IMAGE)
def densenet():
    layer = lambda inputs: Concat(nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, 8, 3, padding=1, bias=False)), keep=True)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), layer(16), layer(24), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 1), nn.AvgPool2d(2), layer(16), head(24))


@network(IMAGE)
def inception():
    return nn.Sequential(conv(3, 16), Concat(conv(16, 8, 1), nn.Sequential(conv(16, 8, 1), conv(8, 8)), nn.Sequential(conv(16, 8, 1), conv(8, 8, 5)), nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(16, 8, 1))), head(32))


@network(IMAGE)
def xception():
    separable = lambda i, o: nn.Sequential(nn.Conv2d(i, i, 3, padding=1, groups=i, bias=False), nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o))
    return nn.Sequential(conv(3, 16), Residual(nn.ReLU(), separable(16, 16), nn.ReLU(), separable(16, 16)), head(16))


@network(IMAGE)
def mobilenet_v1():
    return nn.Sequential(conv(3, 16, stride=2), conv(16, 16, groups=16), conv(16, 32, 1), conv(32, 32, stride=2, groups=32), conv(32, 64, 1), head(64))


@network(IMAGE)
def mobilenet_v2():
    block = Residual(conv(16, 64, 1, act=nn.ReLU6), conv(64, 64, groups=64, act=nn.ReLU6), conv(64, 16, 1, act=None))
    return nn.Sequential(conv(3, 16, act=nn.ReLU6), block, head(16))


@network(IMAGE)
def mobilenet_v3():
    block = Residual(conv(16, 48, 1, act=nn.Hardswish), conv(48, 48, 5, groups=48, act=nn.Hardswish), Gate(nn.AdaptiveAvgPool2d(1), nn.Conv2d(48, 12, 1), nn.ReLU(), nn.Conv2d(12, 48, 1), nn.Hardsigmoid()), conv(48, 16, 1, act=None))
    return nn.Sequential(conv(3, 16, act=nn.Hardswish), block, head(16))


@network(IMAGE)
def efficientnet():
    block = Residual(conv(16, 64, 1, act=nn.SiLU), conv(64, 64, groups=64, act=nn.SiLU), squeeze(64), conv(64, 16, 1, act=None))
    return nn.Sequential(conv(3, 16, act=nn.SiLU), block, nn.Dropout(0.1), head(16))


@network(IMAGE)
def shufflenet():
    return nn.Sequential(conv(3, 16), conv(16, 32, 1, groups=4), nn.ChannelShuffle(4), conv(32, 32, groups=32, act=None), conv(32, 32, 1, groups=4), head(32))


@network(IMAGE)
def squeezenet():
    fire = lambda i, s, e: nn.Sequential(conv(i, s, 1, norm=False), Concat(conv(s, e, 1, norm=False), conv(s, e, norm=False)))
    return nn.Sequential(conv(3, 16, norm=False), nn.MaxPool2d(2), fire(16, 8, 16), fire(32, 8, 16), nn.Conv2d(32, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@network(IMAGE)
def convnext():
    block = Residual(nn.Conv2d(16, 16, 7, padding=3, groups=16), Lambda(lambda x: x.permute(0, 2, 3, 1)), nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16), Lambda(lambda x: x.permute(0, 3, 1, 2)))
    return nn.Sequential(nn.Conv2d(3, 16, 2, 2), block, head(16))


@network(IMAGE)
def group_norm_net():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.InstanceNorm2d(16, affine=True), nn.LeakyReLU(0.1), head(16))


@network(IMAGE)
def dilated():
    return nn.Sequential(conv(3, 16), conv(16, 16, dilation=2), conv(16, 16, dilation=4), head(16))


@network(IMAGE)
def coordinates():
    class Coordinates(nn.Module):
        def forward(self, x):
            rows = torch.linspace(-1, 1, 16).view(1, 1, 16, 1).expand(x.shape[0], 1, 16, 16)
            return torch.cat([x, rows, rows.transpose(2, 3)], 1)

    return nn.Sequential(Coordinates(), conv(5, 16), head(16))


class UNet(nn.Module):
    def __init__(self, up):
        super().__init__()
        self.a, self.b, self.c = conv(3, 16), conv(16, 32), conv(48, 16)
        self.up, self.out = up, nn.Conv2d(16, 5, 1)

    def forward(self, x):
        a = self.a(x)
        return self.out(self.c(torch.cat([a, self.up(self.b(F.max_pool2d(a, 2)))], 1)))


@network(IMAGE)
def unet():
    return UNet(nn.Upsample(scale_factor=2, mode='bilinear', align_corners=False))


@network(IMAGE)
def unet_transposed():
    return UNet(nn.ConvTranspose2d(32, 32, 2, 2))


@network(IMAGE)
def segmentation():
    return nn.Sequential(conv(3, 16, stride=2), conv(16, 32, stride=2), nn.Conv2d(32, 5, 1), nn.Upsample(scale_factor=4))


@network(IMAGE)
def super_resolution():
    return nn.Sequential(conv(3, 16, norm=False), nn.Conv2d(16, 20, 3, padding=1), nn.PixelShuffle(2))


@network(IMAGE)
def autoencoder():
    return nn.Sequential(conv(3, 16, stride=2), conv(16, 8, stride=2), nn.Flatten(), nn.Linear(128, 16), nn.Linear(16, 128), nn.Unflatten(1, (8, 4, 4)), nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 5, 4, 2, 1))


@network(IMAGE)
def discriminator():
    return nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2), nn.Conv2d(32, 5, 4), nn.Flatten())


@network(IMAGE)
def spatial_transformer():
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.where, self.net = nn.Linear(768, 6), nn.Sequential(conv(3, 8), head(8))

        def forward(self, x):
            theta = self.where(x.flatten(1)).view(-1, 2, 3) * 0.1
            return self.net(F.grid_sample(x, F.affine_grid(theta, x.shape, False), align_corners=False))

    return Transformer()


@network((2, 6, 8, 8))
def conv3d():
    return nn.Sequential(nn.Conv3d(2, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(8, 8, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 5))


@network((1, 128))
def audio_m5():
    return nn.Sequential(nn.Conv1d(1, 8, 9, 4), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 5))


@network((4, 32))
def temporal_convolutions():
    block = lambda d: Residual(nn.ConstantPad1d((2 * d, 0), 0.0), nn.Conv1d(8, 8, 3, dilation=d), nn.ReLU())
    return nn.Sequential(nn.Conv1d(4, 8, 1), block(1), block(2), block(4), Lambda(lambda x: x[..., -1]), nn.Linear(8, 5))


@network((4, 32))
def wavenet():
    class Layer(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.conv = nn.Conv1d(8, 16, 2, dilation=dilation)
            self.dilation = dilation

        def forward(self, x):
            a, b = self.conv(F.pad(x, (self.dilation, 0))).chunk(2, 1)
            return x + a.tanh() * b.sigmoid()

    return nn.Sequential(nn.Conv1d(4, 8, 1), Layer(1), Layer(2), Lambda(lambda x: x.mean(2)), nn.Linear(8, 5))


@network((10, 6))
def lstm():
    return nn.Sequential(Last(nn.LSTM(6, 12, batch_first=True)), nn.Linear(12, 5))


@network((10, 6))
def lstm_two_ways():
    return nn.Sequential(Last(nn.LSTM(6, 12, 2, batch_first=True, bidirectional=True)), nn.Linear(24, 5))


@network((10, 6))
def gru():
    return nn.Sequential(Last(nn.GRU(6, 12, batch_first=True)), nn.Linear(12, 5))


@network((10, 6))
def rnn():
    return nn.Sequential(Last(nn.RNN(6, 12, batch_first=True)), nn.Linear(12, 5))


@network((12,), tokens=20)
def text_lstm():
    return nn.Sequential(nn.Embedding(20, 8), Last(nn.LSTM(8, 12, batch_first=True)), nn.Linear(12, 5))


@network((12,), tokens=20)
def text_cnn():
    class TextCnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 8, padding_idx=0)
            self.convs = nn.ModuleList([nn.Conv1d(8, 8, k) for k in (2, 3, 4)])
            self.fc = nn.Linear(24, 5)

        def forward(self, x):
            x = self.table(x).transpose(1, 2)
            return self.fc(torch.cat([F.relu(c(x)).amax(2) for c in self.convs], 1))

    return TextCnn()


@network((12,), tokens=20)
def fasttext():
    return nn.Sequential(nn.EmbeddingBag(20, 16, mode='mean'), nn.Linear(16, 5))


@network((12,), tokens=20)
def word_average():
    return nn.Sequential(nn.Embedding(20, 16), Lambda(lambda x: x.mean(1)), nn.LayerNorm(16), nn.Linear(16, 5))


class Attention(nn.Module):
    def __init__(self, width, heads, causal=False, rotary=False):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.heads, self.causal, self.rotary = heads, causal, rotary

    def turn(self, x):
        positions = torch.arange(x.shape[2], dtype=x.dtype)[:, None]
        angles = positions / 100 ** (torch.arange(x.shape[3] // 2, dtype=x.dtype) / x.shape[3])
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, 2))
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        if self.causal:
            scores = scores.masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), float('-inf'))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def transformer_block(width, heads, causal=False):
    return nn.Sequential(Residual(nn.LayerNorm(width), Attention(width, heads, causal)), Residual(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width)))


@network((12,), tokens=5)
def gpt():
    return nn.Sequential(nn.Embedding(5, 16), transformer_block(16, 2, True), transformer_block(16, 2, True), nn.LayerNorm(16), nn.Linear(16, 5))


@network((12,), tokens=5)
def llama():
    class Swiglu(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(16, 32, False), nn.Linear(16, 32, False), nn.Linear(32, 16, False)

        def forward(self, x):
            return self.c(F.silu(self.a(x)) * self.b(x))

    return nn.Sequential(nn.Embedding(5, 16), Residual(nn.RMSNorm(16), Attention(16, 2, True, rotary=True)), Residual(nn.RMSNorm(16), Swiglu()), nn.RMSNorm(16), nn.Linear(16, 5, False))


@network((12, 8))
def encoder():
    return nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True), Lambda(lambda x: x.mean(1)), nn.Linear(16, 5))


@network((12, 8))
def attention_with_bias():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(2, 12, 12))
            self.qkv, self.fc = nn.Linear(8, 48), nn.Linear(16, 5)

        def forward(self, x):
            q, k, v = (t.unflatten(2, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, 2))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias.expand(x.shape[0], 2, 12, 12))
            return self.fc(y.transpose(1, 2).flatten(2).mean(1))

    return Masked()


@network((12, 8))
def linear_attention():
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.fc = (nn.Linear(8, 8) for _ in range(4))
            self.out = nn.Linear(8, 5)

        def forward(self, x):
            q, k = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1
            kv = torch.einsum('nld,nle->nde', k, self.v(x))
            y = torch.einsum('nld,nde->nle', q, kv) / (torch.einsum('nld,nd->nl', q, k.sum(1)).unsqueeze(-1) + 1e-6)
            return self.out(self.fc(y).mean(1))

    return Linear()


@network((10, 6))
def deep_sets():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), Lambda(lambda x: x.sum(1)), nn.Linear(16, 5))


@network((10, 6))
def graph_convolution():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            adjacency = (torch.rand(10, 10) > 0.6).float() + torch.eye(10)
            self.register_buffer('adjacency', adjacency / adjacency.sum(1, keepdim=True))
            self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 5)

        def forward(self, x):
            x = F.relu(self.a(self.adjacency @ x))
            return self.b(self.adjacency @ x).mean(1)

    return Graph()


@network(IMAGE)
def vit():
    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 4, 4)
            self.token, self.places = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16) * 0.02)
            self.block, self.norm, self.head = transformer_block(16, 2), nn.LayerNorm(16), nn.Linear(16, 5)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
            return self.head(self.norm(self.block(x))[:, 0])

    return Vit()


@network(IMAGE)
def swin_windows():
    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = transformer_block(16, 2)

        def forward(self, x):
            n = x.shape[0]
            x = x.roll((2, 2), (2, 3)).unflatten(2, (2, 4)).unflatten(4, (2, 4)).permute(0, 2, 4, 3, 5, 1)
            x = self.block(x.reshape(n * 4, 16, 16)).view(n, 2, 2, 4, 4, 16)
            return x.permute(0, 5, 1, 3, 2, 4).reshape(n, 16, 8, 8)

    return nn.Sequential(nn.Conv2d(3, 16, 2, 2), Windows(), head(16))


@network(IMAGE)
def mlp_mixer():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)), nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24))
            self.n, self.m = nn.LayerNorm(24), nn.LayerNorm(24)

        def forward(self, x):
            x = x + self.a(self.n(x).transpose(1, 2)).transpose(1, 2)
            return x + self.b(self.m(x))

    return nn.Sequential(nn.Conv2d(3, 24, 4, 4), Lambda(lambda x: x.flatten(2).transpose(1, 2)), Mixer(), Lambda(lambda x: x.mean(1)), nn.Linear(24, 5))


@network((12, 8))
def gmlp():
    class Gating(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.mix = nn.LayerNorm(16), nn.Conv1d(12, 12, 1)

        def forward(self, x):
            u, v = x.chunk(2, -1)
            return u * self.mix(self.norm(v))

    return nn.Sequential(nn.Linear(8, 16), Residual(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), Gating(), nn.Linear(16, 16)), Lambda(lambda x: x.mean(1)), nn.Linear(16, 5))


@network((4, 32))
def gated_convolutions():
    return nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.GLU(1), nn.Conv1d(8, 16, 3, padding=1), nn.GLU(1), nn.Flatten(), nn.Linear(256, 5))


@network((12, 8))
def statistics_pooling():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), Lambda(lambda x: torch.cat([x.mean(1), x.std(1)], 1)), nn.Linear(32, 5))


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(NETWORKS)
    batch = torch.export.Dim('batch', min=2, max=4096)
    for name in names:
        make, shape, tokens = NETWORKS[name]
        torch.manual_seed(len(name))
        net = make().train()
        x = torch.randint(0, tokens, (4, *shape)) if tokens else torch.randn(4, *shape)
        try:
            program = torch.export.export(net, (x,), dynamic_shapes=({0: batch},))
        except Exception:  # A network whose trace needs a fixed size.
            program = torch.export.export(net, (x,))
        torch.export.save(program, f'{folder}/{name}.pt2')
    print(f'{len(names)} networks')


if __name__ == '__main__':
    main()
