"""Trains modules of torch.nn and functions of torch.nn.functional with tandem and PyTorch.

This PyTorch exports each network. PyTorch and `tandem train` train it for 3 steps in float64,
and the script compares parameters and buffers. Networks with random layers run twice with tandem
instead. Prints one line per network: trained, refused, skipped (if PyTorch cannot train or export
it) or WRONG. Exits with 1 if a network is WRONG or if a named network is not trained.

With --onnx, trained networks without random layers are also exported to ONNX. ONNX Runtime's outputs
agree with PyTorch's outputs in evaluation mode to 1e-5 (onnx), or the export is refused (no-onnx).

  nn_parity.py TANDEM FOLDER [--onnx] [NAME...]     default: all networks
"""
import copy
import os
import shutil
import subprocess
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)
STEPS, BATCH, RATE = 3, 6, 0.02


class Net(nn.Module):
    """A layer between two linear layers, for samples of `shape`."""

    def __init__(self, layer, shape, call=None):
        super().__init__()
        torch.manual_seed(0)
        self.shape = shape
        size = int(np.prod(shape))
        self.first = nn.Linear(5, size)
        self.layer = layer
        self.call = call
        with torch.no_grad():
            self.last = nn.Identity()
            state = copy.deepcopy(self.state_dict())
            width = self(torch.randn(2, 5)).shape[1]
            self.load_state_dict(state)
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        # A product, which the layer may overwrite.
        x = torch.tanh(self.first(x)).reshape(-1, *self.shape) * 1.5
        y = self.layer(x) if self.call is None else self.call(self.layer, x)
        y = y[0] if isinstance(y, tuple) else y
        y = y.reshape(x.shape[0], -1)
        return self.last(y)


class Frozen(nn.BatchNorm2d):
    """Batch norm that stays in evaluation mode."""

    def train(self, mode=True):
        return super().train(False)


def without_gradient(x):
    with torch.no_grad():
        scale = x.abs().mean(1, keepdim=True)
    return x / (scale + 1)


def stochastic_depth(x):
    noise = torch.empty(x.shape[0], 1).bernoulli_(0.7).div_(0.7)
    return x * noise


V, S, I, C3 = (6,), (4, 6), (4, 6, 6), (4, 4, 4, 4)


def modules():
    n = nn
    table = {}

    def add(name, layer, shape, call=None):
        table["nn." + name] = (layer, shape, call)

    for name in ("ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 SELU CELU "
                 "GELU Sigmoid SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink Identity RReLU").split():
        add(name, getattr(n, name)(), V)
    add("GELU(tanh)", n.GELU(approximate="tanh"), V)
    add("ReLU(inplace)", n.ReLU(inplace=True), V)
    for name in "ELU Hardsigmoid Hardtanh Hardswish LeakyReLU ReLU6 SELU CELU SiLU Mish".split():
        add(name + "(inplace)", getattr(n, name)(inplace=True), V)
    add("Threshold", n.Threshold(0.1, 20), V)
    for name in "Softmin Softmax LogSoftmax".split():
        add(name, getattr(n, name)(dim=1), V)
    add("GLU", n.GLU(), V)
    add("Softmax2d", n.Softmax2d(), I)
    add("MultiheadAttention", n.MultiheadAttention(6, 2, batch_first=True), S, lambda m, x: m(x, x, x)[0])
    add("MultiheadAttention(no weights)", n.MultiheadAttention(6, 2, batch_first=True), S,
        lambda m, x: m(x, x, x, need_weights=False)[0])
    add("MultiheadAttention(bias_kv, zero_attn)",
        n.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True), S, lambda m, x: m(x, x, x)[0])
    add("MultiheadAttention(kdim)", n.MultiheadAttention(6, 2, kdim=6, vdim=6, batch_first=True), S,
        lambda m, x: m(x, x, x)[0])
    for d, shape in ((1, S), (2, I), (3, C3)):
        def of(name, *args, d=d, shape=shape, title=None, **kw):
            add(f"{title or name}{'' if title else str(d) + 'd'}", getattr(n, f"{name}{d}d")(*args, **kw), shape)
        of("Conv", 4, 4, 3, padding=1)
        of("Conv", 4, 4, 3, padding="same", title=f"Conv{d}d(same)")
        of("Conv", 4, 4, 3, padding=1, padding_mode="circular", title=f"Conv{d}d(circular)")
        of("Conv", 4, 4, 2, groups=2, dilation=1, stride=2, title=f"Conv{d}d(groups)")
        of("ConvTranspose", 4, 3, 3, stride=2, output_padding=1)
        of("MaxPool", 2)
        of("MaxPool", 3, stride=1, ceil_mode=True, padding=1, title=f"MaxPool{d}d(ceil)")
        of("MaxPool", 2, return_indices=True, title=f"MaxPool{d}d(indices)")
        of("AvgPool", 2)
        of("AvgPool", 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False, title=f"AvgPool{d}d(ceil)")
        of("LPPool", 2, 2)
        of("AdaptiveMaxPool", 2)
        of("AdaptiveAvgPool", 3)
        of("ReflectionPad", 1)
        of("ReplicationPad", 1)
        of("ZeroPad", 1)
        of("ConstantPad", 1, 0.5)
        of("CircularPad", 1)
        of("BatchNorm", 4)
        of("BatchNorm", 4, affine=False, title=f"BatchNorm{d}d(affine=False)")
        of("BatchNorm", 4, track_running_stats=False, title=f"BatchNorm{d}d(no stats)")
        of("BatchNorm", 4, momentum=None, title=f"BatchNorm{d}d(momentum=None)")
        of("InstanceNorm", 4)
        of("InstanceNorm", 4, affine=True, title=f"InstanceNorm{d}d(affine)")
        of("InstanceNorm", 4, track_running_stats=True, title=f"InstanceNorm{d}d(stats)")
        of("Dropout", 0.3)
        add(f"MaxUnpool{d}d", nn.ModuleList([getattr(n, f"MaxPool{d}d")(2, return_indices=True),
                                               getattr(n, f"MaxUnpool{d}d")(2)]), shape,
            lambda m, x: m[1](*m[0](x)))
    add("Dropout", n.Dropout(0.3), V)
    add("Dropout(inplace)", n.Dropout(0.3, inplace=True), V)
    add("AlphaDropout", n.AlphaDropout(0.3), V)
    add("FeatureAlphaDropout", n.FeatureAlphaDropout(0.3), I)
    add("FractionalMaxPool2d", n.FractionalMaxPool2d(2, output_size=3), I)
    add("FractionalMaxPool3d", n.FractionalMaxPool3d(2, output_size=2), C3)
    add("BatchNorm1d(features)", n.BatchNorm1d(6), V)
    add("BatchNorm2d(frozen)", nn.Sequential(Frozen(4), n.Conv2d(4, 4, 1), n.BatchNorm2d(4)), I)
    add("SyncBatchNorm", n.SyncBatchNorm(4), I)
    add("GroupNorm", n.GroupNorm(2, 4), I)
    add("LayerNorm", n.LayerNorm(6), S)
    add("LayerNorm(2 dimensions)", n.LayerNorm((4, 6)), S)
    add("LayerNorm(no bias)", n.LayerNorm(6, bias=False), S)
    add("RMSNorm", n.RMSNorm(6), S)
    add("RMSNorm(eps)", n.RMSNorm(6, eps=1e-3), S)
    add("RMSNorm(no weight)", n.RMSNorm(6, elementwise_affine=False), S)
    add("LocalResponseNorm", n.LocalResponseNorm(2), I)
    add("CrossMapLRN2d", n.CrossMapLRN2d(2), I)
    for name in "RNN LSTM GRU".split():
        of = getattr(n, name)
        add(name, of(6, 5), S, lambda m, x: m(x.transpose(0, 1))[0].transpose(0, 1))
        add(name + "(batch_first)", of(6, 5, batch_first=True), S)
        add(name + "(2 layers, both directions)", of(6, 5, 2, batch_first=True, bidirectional=True), S)
        add(name + "(dropout)", of(6, 5, 3, batch_first=True, dropout=0.3), S)
        add(name + "(no bias)", of(6, 5, bias=False, batch_first=True), S)
        add(name + "Cell", getattr(n, name + "Cell")(6, 5), V)
    add("RNN(relu)", n.RNN(6, 5, nonlinearity="relu", batch_first=True), S)
    add("LSTM(proj)", n.LSTM(6, 5, 2, proj_size=3, batch_first=True), S)
    add("LSTM(last state)", n.LSTM(6, 5, batch_first=True), S, lambda m, x: m(x)[1][0].transpose(0, 1))
    add("TransformerEncoderLayer", n.TransformerEncoderLayer(6, 2, 8, dropout=0, batch_first=True), S)
    add("TransformerEncoderLayer(norm_first, gelu)",
        n.TransformerEncoderLayer(6, 2, 8, dropout=0, batch_first=True, norm_first=True, activation="gelu"), S)
    add("TransformerEncoderLayer(dropout)", n.TransformerEncoderLayer(6, 2, 8, dropout=0.2, batch_first=True), S)
    add("TransformerEncoder", n.TransformerEncoder(n.TransformerEncoderLayer(6, 2, 8, dropout=0, batch_first=True), 2), S)
    add("TransformerDecoderLayer", n.TransformerDecoderLayer(6, 2, 8, dropout=0, batch_first=True), S, lambda m, x: m(x, x))
    add("TransformerDecoder", n.TransformerDecoder(n.TransformerDecoderLayer(6, 2, 8, dropout=0, batch_first=True), 2), S,
        lambda m, x: m(x, x))
    add("Transformer", n.Transformer(6, 2, 1, 1, 8, dropout=0, batch_first=True), S, lambda m, x: m(x, x))
    add("Linear", n.Linear(6, 4), V)
    add("Linear(no bias)", n.Linear(6, 4, bias=False), V)
    lazy = n.LazyLinear(4)
    lazy(torch.zeros(1, 6))
    add("LazyLinear", lazy, V)
    add("Bilinear", n.Bilinear(6, 6, 4), V, lambda m, x: m(x, x.flip(1)))
    add("Embedding", n.Embedding(10, 4), V, lambda m, x: m((x * 3 + 5).long()))
    add("Embedding(padding, scale)", n.Embedding(10, 4, padding_idx=3, scale_grad_by_freq=True), V,
        lambda m, x: m((x * 3 + 5).long()))
    add("Embedding(max_norm)", n.Embedding(10, 4, max_norm=1.0), V, lambda m, x: m((x * 3 + 5).long()))
    for mode in "sum mean max".split():
        add(f"EmbeddingBag({mode})", n.EmbeddingBag(10, 4, mode=mode), V, lambda m, x: m((x * 3 + 5).long()))
    add("CosineSimilarity", n.CosineSimilarity(dim=1), S, lambda m, x: m(x, x.flip(2)))
    add("PairwiseDistance", n.PairwiseDistance(), V, lambda m, x: m(x, x.flip(1)).unsqueeze(1))
    add("PixelShuffle", n.PixelShuffle(2), I)
    add("PixelUnshuffle", n.PixelUnshuffle(2), I)
    add("ChannelShuffle", n.ChannelShuffle(2), I)
    add("Flatten", n.Flatten(), I)
    add("Unflatten", n.Unflatten(1, (2, 3)), V)
    add("Fold", n.Fold((3, 3), 2), (4, 4))
    add("Unfold", n.Unfold(2), I)
    for mode, shape in (("nearest", I), ("bilinear", I), ("bicubic", I), ("linear", S), ("trilinear", C3), ("area", I)):
        if mode == "area":
            add("AdaptiveArea", nn.Identity(), I, lambda m, x: F.interpolate(x, 3, mode="area"))
            continue
        add(f"Upsample({mode})", n.Upsample(scale_factor=2, mode=mode), shape)
        if mode != "nearest":
            add(f"Upsample({mode}, align)", n.Upsample(scale_factor=2, mode=mode, align_corners=True), shape)
    add("Upsample(size)", n.Upsample(size=(5, 7)), I)
    add("UpsamplingNearest2d", n.UpsamplingNearest2d(scale_factor=2), I)
    add("UpsamplingBilinear2d", n.UpsamplingBilinear2d(scale_factor=2), I)
    add("weight_norm", nn.utils.parametrizations.weight_norm(n.Linear(6, 4)), V)
    add("weight_norm(old)", nn.utils.weight_norm(n.Linear(6, 4)), V)
    add("spectral_norm", nn.utils.parametrizations.spectral_norm(n.Linear(6, 4)), V)
    add("spectral_norm(conv)", nn.utils.parametrizations.spectral_norm(n.Conv2d(4, 4, 3)), I)
    add("orthogonal", nn.utils.parametrizations.orthogonal(n.Linear(6, 6)), V)
    two = lambda m, x: m(x, x.flip(1).detach())
    add("KLDivLoss", n.KLDivLoss(reduction="none"), V,
        lambda m, x: m(x.log_softmax(1), x.flip(1).softmax(1).detach()))
    for name in ("L1Loss MSELoss SmoothL1Loss HuberLoss BCEWithLogitsLoss SoftMarginLoss PoissonNLLLoss "
                 "MultiLabelSoftMarginLoss").split():
        layer = getattr(n, name)(reduction="none")
        if name in ("BCEWithLogitsLoss", "SoftMarginLoss", "MultiLabelSoftMarginLoss"):
            add(name, layer, V, lambda m, x: m(x, (x.detach() > 0).to(x.dtype)).reshape(x.shape[0], -1))
        else:
            add(name, layer, V, two)
    add("BCELoss", n.BCELoss(reduction="none"), V, lambda m, x: m(torch.sigmoid(x), (x.detach() > 0).to(x.dtype)))
    for name in "CrossEntropyLoss NLLLoss MultiMarginLoss".split():
        add(name, getattr(n, name)(reduction="none"), V,
            lambda m, x: m(x, x.detach().argmax(1)).unsqueeze(1))
    add("CrossEntropyLoss(smoothing)", n.CrossEntropyLoss(reduction="none", label_smoothing=0.1), V,
        lambda m, x: m(x, x.detach().argmax(1)).unsqueeze(1))
    add("GaussianNLLLoss", n.GaussianNLLLoss(reduction="none"), V, lambda m, x: m(x, x.flip(1).detach(), x * x + 1))
    add("CosineEmbeddingLoss", n.CosineEmbeddingLoss(reduction="none"), V,
        lambda m, x: m(x, x.flip(1), torch.sign(x.detach()[:, 0])).unsqueeze(1))
    add("HingeEmbeddingLoss", n.HingeEmbeddingLoss(reduction="none"), V, lambda m, x: m(x, torch.sign(x.detach())))
    add("MarginRankingLoss", n.MarginRankingLoss(reduction="none"), V,
        lambda m, x: m(x, x.flip(1), torch.sign(x.detach())))
    add("TripletMarginLoss", n.TripletMarginLoss(reduction="none"), V,
        lambda m, x: m(x, x.flip(1), x * 2).unsqueeze(1))
    add("TripletMarginWithDistanceLoss", n.TripletMarginWithDistanceLoss(reduction="none"), V,
        lambda m, x: m(x, x.flip(1), x * 2).unsqueeze(1))
    add("MultiLabelMarginLoss", n.MultiLabelMarginLoss(reduction="none"), V,
        lambda m, x: m(x, x.detach().argsort(1)).unsqueeze(1))
    add("CTCLoss", n.CTCLoss(reduction="none"), S,
        lambda m, x: m(x.transpose(0, 1).log_softmax(2), torch.ones(x.shape[0], 2, dtype=torch.long),
                       torch.full((x.shape[0],), 4), torch.full((x.shape[0],), 2)).unsqueeze(1))
    return table


def functions():
    table = {}

    def add(name, shape, call):
        table["F." + name] = (nn.Identity(), shape, lambda m, x: call(x))

    add("scaled_dot_product_attention", S, lambda x: F.scaled_dot_product_attention(x, x, x))
    add("scaled_dot_product_attention(causal)", S, lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True))
    add("scaled_dot_product_attention(mask, scale)", S, lambda x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.zeros(4, 4).tril(), scale=0.3))
    add("scaled_dot_product_attention(gqa)", (4, 4, 6), lambda x: F.scaled_dot_product_attention(
        x, x[:, :2], x[:, :2], enable_gqa=True))
    add("scaled_dot_product_attention(dropout)", S, lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.2))
    add("no_grad", V, without_gradient)
    add("tensor", V, lambda x: x * torch.tensor(0.5))
    add("stochastic_depth", V, stochastic_depth)
    add("gumbel_softmax", V, lambda x: F.gumbel_softmax(x))
    add("gumbel_softmax(hard)", V, lambda x: F.gumbel_softmax(x, hard=True))
    add("dropout1d", S, lambda x: F.dropout1d(x, 0.3))
    add("alpha_dropout", V, lambda x: F.alpha_dropout(x, 0.3, training=True))
    add("normalize", V, lambda x: F.normalize(x))
    add("normalize(p=1)", V, lambda x: F.normalize(x, p=1))
    add("one_hot", V, lambda x: F.one_hot(x.argmax(1), 6).to(x.dtype) * x)
    add("pdist", S, lambda x: torch.cdist(x, x))
    add("grid_sample", I, lambda x: F.grid_sample(x, F.affine_grid(
        torch.eye(2, 3).unsqueeze(0).repeat(x.shape[0], 1, 1) * 0.9, [x.shape[0], 4, 5, 5], align_corners=False), align_corners=False))
    add("grid_sample(bicubic)", I, lambda x: F.grid_sample(
        x, torch.tanh(x[:, :2].permute(0, 2, 3, 1)), mode="bicubic", padding_mode="border", align_corners=True))
    add("pad(circular)", S, lambda x: F.pad(x, (1, 2), mode="circular"))
    add("pad(negative)", S, lambda x: F.pad(x, (-1, 2)))
    add("interpolate(antialias)", I, lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True))
    add("interpolate(bicubic antialias)", I, lambda x: F.interpolate(x, size=(3, 4), mode="bicubic", antialias=True))
    add("interpolate(nearest-exact)", I, lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"))
    add("interpolate(recompute)", I, lambda x: F.interpolate(
        x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True))
    add("softmax(dtype)", V, lambda x: F.softmax(x, 1, dtype=torch.float64))
    add("log_softmax", V, lambda x: F.log_softmax(x, 1))
    add("layer_norm", S, lambda x: F.layer_norm(x, (6,)))
    add("rms_norm", S, lambda x: F.rms_norm(x, (6,)))
    add("group_norm", I, lambda x: F.group_norm(x, 2))
    add("instance_norm", I, lambda x: F.instance_norm(x))
    add("local_response_norm", I, lambda x: F.local_response_norm(x, 2))
    add("batch_norm(no stats)", I, lambda x: F.batch_norm(x, None, None, training=True))
    add("relu_", V, lambda x: F.relu_(x * 1))
    add("threshold_", V, lambda x: F.threshold_(x * 1, 0.1, 0.2))
    add("hardtanh_", V, lambda x: F.hardtanh_(x * 1))
    add("elu_", V, lambda x: F.elu_(x * 1))
    add("leaky_relu_", V, lambda x: F.leaky_relu_(x * 1))
    add("selu_", V, lambda x: F.selu_(x * 1))
    add("celu_", V, lambda x: F.celu_(x * 1))
    add("rrelu_", V, lambda x: F.rrelu_(x * 1, training=True))
    add("logsigmoid", V, F.logsigmoid)
    add("linear", V, lambda x: F.linear(x, torch.ones(3, 6)))
    add("bilinear", V, lambda x: F.bilinear(x, x, torch.ones(3, 6, 6)))
    add("embedding", V, lambda x: F.embedding((x * 3 + 5).long(), torch.ones(10, 3)) * x.unsqueeze(2))
    add("unfold", I, lambda x: F.unfold(x, 2))
    add("max_pool2d_with_indices", I, lambda x: F.max_pool2d_with_indices(x, 2)[0])
    add("adaptive_max_pool2d(indices)", I, lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True)[0])
    add("multi_head_attention_forward", S, lambda x: F.multi_head_attention_forward(
        x, x, x, 6, 2, torch.ones(18, 6) * 0.1, torch.zeros(18), None, None, False, 0.0, torch.eye(6), torch.zeros(6))[0])
    add("ctc_loss", S, lambda x: F.ctc_loss(
        x.transpose(0, 1).log_softmax(2), torch.ones(x.shape[0], 2, dtype=torch.long), torch.full((x.shape[0],), 4),
        torch.full((x.shape[0],), 2), reduction="none").unsqueeze(1))
    add("kl_div(log_target)", V, lambda x: F.kl_div(x.log_softmax(1), x.flip(1).log_softmax(1), reduction="none", log_target=True))
    add("cross_entropy(weight)", V, lambda x: F.cross_entropy(
        x, x.detach().argmax(1), weight=torch.ones(6) * 2, reduction="none").unsqueeze(1))
    add("cross_entropy(probabilities)", V, lambda x: F.cross_entropy(
        x, x.detach().softmax(1), reduction="none").unsqueeze(1))
    return table


RANDOM = ("ropout", "RReLU", "rrelu", "Fractional", "gumbel", "stochastic")


def is_random(name):
    return any(word in name for word in RANDOM)


def train_with_torch(net, x, y):
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
    return net.state_dict()


def run(tandem, *arguments):
    return subprocess.run([tandem, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def train_with_tandem(tandem, folder, name, data):
    out = os.path.join(folder, name)
    done = run(tandem, "train", "--model", os.path.join(folder, "net.pt2"), "--data", data, "--mean", "0", "--std", "1",
               "--precision", "fp64", "--optimizer", "sgd", "--lr", str(RATE), "--epochs", str(STEPS),
               "--batch-size", str(BATCH), "--reduction", "mean", "--seed", "1", "--out", out)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1]
    weights = out + ".pt"
    done = run(tandem, "export", "--checkpoint", out, "--out", weights)
    if done.returncode != 0:
        return None, "export: " + done.stderr.strip().splitlines()[-1]
    return torch.load(weights), ""


def difference(found, expected):
    worst = 0.0
    for key, value in expected.items():
        a, b = found[key].double(), value.double()
        if b.numel():
            worst = max(worst, ((a - b).abs() / (1 + b.abs())).max().item())
            if not torch.isfinite(a).all():
                return float("inf")
    return worst


def check(tandem, folder, name, layer, shape, call, with_onnx):
    try:
        net = Net(layer, shape, call).train()
        torch.manual_seed(1)
        # tandem reads float32 data.
        x, y = torch.randn(BATCH, 5).float().double(), torch.randn(BATCH, 2).float().double()
        expected = train_with_torch(copy.deepcopy(net), x, y)
    except Exception as error:
        return "skipped", "PyTorch: " + str(error).splitlines()[0]
    try:
        program = torch.export.export(net, (torch.randn(3, 5),), dynamic_shapes=({0: torch.export.Dim("batch")},))
        os.makedirs(folder, exist_ok=True)
        torch.export.save(program, os.path.join(folder, "net.pt2"))
    except Exception as error:
        return "skipped", "export: " + str(error).splitlines()[0]
    data = os.path.join(folder, "data")
    os.makedirs(data, exist_ok=True)
    for part in ("train", "test"):
        np.save(f"{data}/{part}_x.npy", x.numpy())
        np.save(f"{data}/{part}_y.npy", y.numpy())
    found, error = train_with_tandem(tandem, folder, "run", data)
    if found is None:
        return "refused", error
    if is_random(name):
        again, error = train_with_tandem(tandem, folder, "again", data)
        worst = float("inf") if again is None else difference(again, found)
        return ("trained" if worst == 0 else "WRONG"), f"runs differ by {worst:.1e}"
    worst = difference(found, expected)
    if worst >= 1e-9 or not with_onnx:
        return ("trained" if worst < 1e-9 else "WRONG"), f"{worst:.1e}"
    net.load_state_dict(found)
    return check_onnx(tandem, folder, net.eval(), x)


def check_onnx(tandem, folder, net, x):
    import onnxruntime

    path = os.path.join(folder, "net.onnx")
    done = run(tandem, "export", "--checkpoint", os.path.join(folder, "run"), "--out", path)
    if done.returncode != 0:
        return "no-onnx", done.stderr.strip().splitlines()[-1]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.float().numpy()})[0]).double()
    with torch.no_grad():
        expected = net(x)
    worst = ((found - expected).abs() / (1 + expected.abs())).max().item()
    return ("onnx" if worst < 1e-5 else "WRONG"), f"{worst:.1e}"


def main():
    with_onnx = "--onnx" in sys.argv
    tandem, folder, *names = [word for word in sys.argv[1:] if word != "--onnx"]
    table = {**modules(), **functions()}
    counts = {}
    for name, (layer, shape, call) in table.items():
        if names and name not in names:
            continue
        place = os.path.join(folder, "".join(c if c.isalnum() else "_" for c in name))
        shutil.rmtree(place, ignore_errors=True)
        result, text = check(tandem, place, name, layer, shape, call, with_onnx)
        counts[result] = counts.get(result, 0) + 1
        print(f"{result:8} {name:48} {text}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    if counts.get("WRONG") or (names and counts != {"trained": len(names)}):
        sys.exit(1)


if __name__ == "__main__":
    main()
