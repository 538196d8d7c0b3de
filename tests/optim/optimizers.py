"""Prints the parameters after each step of each optimizer, for torch_optim_test.cpp.

PyTorch 1.13 lacks some of the optimizers. Their formulas are those of Chen et al. 2023
(Lion), You et al. 2020 (LAMB), torch/optim/_adafactor.py of PyTorch 2.5,
torch/optim/_muon.py of 2.9 (in float64 instead of bfloat16), and torch/optim/nadam.py of
2.0 (1.13 multiplies one factor twice).
"""
import math
import torch
torch.set_default_dtype(torch.float64)

def lion(p, g, s, t, lr=1e-4, betas=(0.9, 0.99), weight_decay=0):
    m = s.setdefault("m", torch.zeros_like(p))
    p.mul_(1 - lr * weight_decay)
    p.sub_(lr * torch.sign(betas[0] * m + (1 - betas[0]) * g))
    m.copy_(betas[1] * m + (1 - betas[1]) * g)

def moments(g, s, t, betas):
    m = s.setdefault("m", torch.zeros_like(g))
    v = s.setdefault("v", torch.zeros_like(g))
    m.copy_(betas[0] * m + (1 - betas[0]) * g)
    v.copy_(betas[1] * v + (1 - betas[1]) * g * g)
    return m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)

def nadam(p, g, s, t, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0,
          momentum_decay=4e-3):
    g = g + weight_decay * p
    _, v = moments(g, s, t, betas)
    mu = betas[0] * (1 - 0.5 * 0.96 ** (t * momentum_decay))
    mu_next = betas[0] * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
    product = s["product"] = s.get("product", 1) * mu
    denom = v.sqrt().add_(eps)
    p.addcdiv_(g, denom, value=-lr * (1 - mu) / (1 - product))
    p.addcdiv_(s["m"], denom, value=-lr * mu_next / (1 - product * mu_next))

def lamb(p, g, s, t, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0):
    m, v = moments(g, s, t, betas)
    update = m / (v.sqrt() + eps) + weight_decay * p
    p.sub_(lr * p.norm() / update.norm() * update)

def adafactor(p, g, s, t, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0,
              weight_decay=0.0):
    eps1 = torch.finfo(p.dtype).eps if eps[0] is None else eps[0]
    weight = t ** beta2_decay
    alpha = max(eps[1], p.norm(2).item() / p.numel() ** 0.5) * min(lr, 1 / t ** 0.5)
    p.mul_(1 - lr * weight_decay)
    if g.dim() > 1:
        row = s.setdefault("row", g.new_zeros(g[..., :1].shape))
        col = s.setdefault("col", g.new_zeros(g[..., :1, :].shape))
        row.lerp_(torch.norm(g, dim=-1, keepdim=True).square() / g.size(-1), weight)
        col.lerp_(torch.norm(g, dim=-2, keepdim=True).square() / g.size(-2), weight)
        v = row @ col / row.mean(dim=-2, keepdim=True).clamp(min=eps1)
    else:
        v = s.setdefault("variance", torch.zeros_like(g))
        v.lerp_(g * g, weight)
    update = v.clamp(min=eps1 * eps1).rsqrt() * g
    denom = max(1.0, update.norm(2).item() / (update.numel() ** 0.5 * d))
    p.add_(update, alpha=-alpha / denom)

def muon(p, g, s, t, lr=1e-3, weight_decay=0.1, momentum=0.95, ns_steps=5,
         adjust_lr_fn="original", betas=(0.9, 0.999), eps=1e-8):
    p.mul_(1 - lr * weight_decay)
    if p.dim() != 2:
        m, v = moments(g, s, t, betas)
        p.sub_(lr * m / (v.sqrt() + eps))
        return
    buf = s.setdefault("buf", torch.zeros_like(p))
    buf.lerp_(g, 1 - momentum)
    x = g.lerp(buf, momentum)
    rows, columns = x.shape
    x = x.T if rows > columns else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    x = x.T if rows > columns else x
    scale = (math.sqrt(max(1, rows / columns)) if adjust_lr_fn == "original"
             else 0.2 * math.sqrt(max(rows, columns)))
    p.sub_(lr * scale * x)

class Formula:
    def __init__(self, groups, update):
        self.groups, self.update, self.state, self.t = groups, update, {}, 0
    @torch.no_grad()
    def step(self):
        self.t += 1
        for group in self.groups:
            options = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad, self.state.setdefault(p, {}), self.t,
                                **options)

class Decoupled:
    def __init__(self, groups, make):
        self.decayed = groups[1]["params"]
        self.factor = 1 - groups[1]["lr"] * groups[1].pop("weight_decay")
        self.optimizer = make(groups)
    @torch.no_grad()
    def step(self):
        for p in self.decayed:
            p.mul_(self.factor)
        self.optimizer.step()

optim = torch.optim
adam = dict(lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)
decoupled = dict(lr=0.01, weight_decay=0.1)
cases = [
    (optim.Adadelta, dict(lr=0.3, rho=0.8, eps=1e-4, weight_decay=0.1)),
    (optim.Adamax, adam),
    (lambda groups: Formula(groups, nadam), dict(adam, momentum_decay=0.1)),
    (lambda groups: Decoupled(groups, lambda groups: Formula(groups, nadam)),
     decoupled),
    (optim.RAdam, adam),
    (lambda groups: Decoupled(groups, optim.RAdam), decoupled),
    (lambda groups: Formula(groups, lion),
     dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)),
    (lambda groups: Formula(groups, lamb), adam),
    (lambda groups: Formula(groups, adafactor),
     dict(lr=0.5, beta2_decay=-0.6, eps=(1e-4, 0.1), d=1.25, weight_decay=0.1)),
    (lambda groups: Formula(groups, muon),
     dict(lr=0.02, momentum=0.8, ns_steps=3, adjust_lr_fn="match_rms_adamw",
          betas=(0.8, 0.95), weight_decay=0.2)),
]

def make(first, last, *dims):
    return torch.linspace(first, last, math.prod(dims)).view(dims).clone().requires_grad_()

for create, options in cases:
    a, b, c = make(-1, 2, 3, 4), make(-1, 2, 5), make(-1, 1, 2, 3, 4)
    d, unused = make(0.5, 2, 6, 2), make(-1, 2, 2)
    optimizer = create([{"params": [a, b, unused]}, {"params": [c, d], **options}])
    for step in range(20):
        for p in (a, b, c, d):
            p.grad = None
        ((a * a * a).sum() + torch.sin(3 * b).sum()
         + (torch.cos(2 * c).sum() + (d * d * d).sum()) * (step + 1)).backward()
        optimizer.step()
        for p in (a, b, c, d, unused):
            print(*(x.hex() for x in p.flatten().tolist()))
