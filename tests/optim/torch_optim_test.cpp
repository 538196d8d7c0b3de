// Optimizers for torch::optim against PyTorch, and against the formulas of papers and
// of newer versions of PyTorch.

#include "tandem/optim/torch_optim.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/parity/python.h"

namespace tandem::torch_optim_test {

using testing::HasSubstr;

constexpr int64_t kSteps = 20;

struct Problem {
  static at::Tensor make(double first, double last, at::IntArrayRef dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) {
      count *= dim;
    }
    return at::linspace(first, last, count, at::kDouble)
        .view(dims)
        .clone()
        .set_requires_grad(true);
  }

  at::Tensor loss(int64_t step) const {
    const auto rising = static_cast<double>(step + 1);
    return (a * a * a).sum() + at::sin(3 * b).sum() +
           (at::cos(2 * c).sum() + (d * d * d).sum()) * rising;
  }

  std::vector<at::Tensor> all() const {
    return {a, b, c, d, unused};
  }

  at::Tensor a = make(-1, 2, {3, 4});
  at::Tensor b = make(-1, 2, {5});
  at::Tensor c = make(-1, 1, {2, 3, 4});
  at::Tensor d = make(0.5, 2, {6, 2});
  at::Tensor unused = make(-1, 2, {2});
};

struct Case {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(const Problem&)> make;
};

// An optimizer with two groups. The first has the defaults.
template <typename Class, typename Options>
Case make_case(const char* name, const Options& options) {
  return {name, [options](const Problem& problem) {
            std::vector<torch::optim::OptimizerParamGroup> groups;
            groups.emplace_back(
                std::vector<at::Tensor>{problem.a, problem.b, problem.unused});
            groups.emplace_back(
                std::vector<at::Tensor>{problem.c, problem.d},
                std::make_unique<Options>(options));
            return std::make_unique<Class>(groups);
          }};
}

// In the order of the cases of kPython.
std::vector<Case> cases() {
  return {
      make_case<Adadelta>(
          "adadelta", AdadeltaOptions(0.3).rho(0.8).eps(1e-4).weight_decay(0.1)),
      make_case<Adamax>(
          "adamax", AdamaxOptions(0.01).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1)),
      make_case<NAdam>(
          "nadam", NAdamOptions(0.01)
                       .betas({0.8, 0.95})
                       .eps(1e-4)
                       .momentum_decay(0.1)
                       .weight_decay(0.1)),
      make_case<NAdam>(
          "nadam_decoupled",
          NAdamOptions(0.01).decoupled_weight_decay(true).weight_decay(0.1)),
      make_case<RAdam>(
          "radam", RAdamOptions(0.01).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1)),
      make_case<RAdam>(
          "radam_decoupled",
          RAdamOptions(0.01).decoupled_weight_decay(true).weight_decay(0.1)),
      make_case<Lion>("lion", LionOptions(0.01).betas({0.8, 0.95}).weight_decay(0.1)),
      make_case<Lamb>(
          "lamb", LambOptions(0.01).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1)),
      make_case<Adafactor>(
          "adafactor", AdafactorOptions(0.5)
                           .beta2_decay(-0.6)
                           .eps(1e-4)
                           .eps2(0.1)
                           .d(1.25)
                           .weight_decay(0.1)),
      make_case<Muon>(
          "muon", MuonOptions(0.02)
                      .momentum(0.8)
                      .ns_steps(3)
                      .match_rms_adamw(true)
                      .betas({0.8, 0.95})
                      .weight_decay(0.2)),
  };
}

// Prints the parameters after each step of each optimizer. torch 1.13 lacks some of
// them. Their formulas are those of Chen et al. 2023 (Lion), You et al. 2020 (LAMB),
// torch/optim/_adafactor.py of 2.5, torch/optim/_muon.py of 2.9 (in float64 instead of
// bfloat16), and torch/optim/nadam.py of 2.0 (1.13 multiplies one factor twice).
constexpr const char* kPython = R"(
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
)";

void make_step(
    torch::optim::Optimizer& optimizer, const Problem& problem, int64_t step) {
  const auto loss = optimizer.step([&] {
    optimizer.zero_grad();
    auto value = problem.loss(step);
    value.backward();
    return value;
  });
  EXPECT_TRUE(loss.defined());
}

TEST(TorchOptim, EqualsPython) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto python = run_python({"-c", kPython});
  ASSERT_TRUE(python.status.ok()) << python.errors;
  std::istringstream words(python.output);
  for (const auto& [name, make] : cases()) {
    const Problem problem;
    const auto optimizer = make(problem);
    double largest = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      make_step(*optimizer, problem, step);
      for (const auto& parameter : problem.all()) {
        const auto flat = parameter.detach().flatten();
        for (int64_t i = 0; i < flat.numel(); ++i) {
          std::string word;
          ASSERT_TRUE(words >> word);
          const double expected = std::strtod(word.c_str(), nullptr);
          const double error = std::abs(flat[i].item<double>() - expected);
          largest = std::max(largest, error / std::max(1.0, std::abs(expected)));
        }
      }
    }
    EXPECT_LE(largest, 1e-12) << name;
    EXPECT_GT((problem.a - Problem().a).abs().max().item<double>(), 1e-4) << name;
  }
}

TEST(TorchOptim, SavesItsStateAsOtherOptimizersDo) {
  for (const auto& [name, make] : cases()) {
    SCOPED_TRACE(name);
    const Problem whole;
    const auto optimizer = make(whole);
    make_step(*optimizer, whole, 0);
    std::stringstream stream;
    torch::save(*optimizer, stream);
    const Problem loaded;
    const auto other = make(loaded);
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < loaded.all().size(); ++i) {
        loaded.all()[i].copy_(whole.all()[i]);
      }
    }
    torch::load(*other, stream);
    make_step(*optimizer, whole, 1);
    make_step(*other, loaded, 1);
    for (size_t i = 0; i < loaded.all().size(); ++i) {
      EXPECT_TRUE(loaded.all()[i].equal(whole.all()[i])) << i;
    }
  }
}

// Optimizers compute such parameters with LibTorch's operators.
TEST(TorchOptim, UpdatesParametersWithGaps) {
  for (const auto& [name, make] : cases()) {
    const Problem dense;
    Problem gaps;
    gaps.a = at::zeros({3, 8}, at::kDouble)
                 .slice(1, 0, 8, 2)
                 .copy_(gaps.a.detach())
                 .set_requires_grad(true);
    ASSERT_FALSE(gaps.a.is_non_overlapping_and_dense());
    const auto expected = make(dense);
    const auto optimizer = make(gaps);
    for (int64_t step = 0; step < 3; ++step) {
      make_step(*expected, dense, step);
      make_step(*optimizer, gaps, step);
    }
    EXPECT_TRUE(gaps.a.allclose(dense.a, 1e-13, 1e-13)) << name;
  }
}

TEST(TorchOptim, OptionsMayChangeBetweenSteps) {
  const Problem changed;
  const Problem constant;
  RAdam first(changed.all(), RAdamOptions(0.01).eps(1e-3));
  RAdam second(constant.all(), RAdamOptions(0.01).eps(1e-5));
  make_step(first, changed, 0);
  make_step(second, constant, 0);
  EXPECT_TRUE(first.param_groups().size() == 1 && changed.b.equal(constant.b))
      << "the first step of RAdam does not use eps";
  dynamic_cast<RAdamOptions&>(first.param_groups()[0].options()).eps(1e-5);
  for (int64_t step = 1; step < 10; ++step) {
    make_step(first, changed, step);
    make_step(second, constant, step);
  }
  EXPECT_TRUE(changed.b.equal(constant.b));
}

TEST(TorchOptim, RejectsInvalidOptions) {
  const std::vector<at::Tensor> parameters = {at::ones({1})};
  const auto refused = [&](const auto& make) { return error_of<ConfigError>(make); };
  EXPECT_THAT(
      refused([&] { Adadelta optimizer(parameters, AdadeltaOptions(-1)); }),
      HasSubstr("[adadelta] lr is -1, expected 0 to 1e+37; change lr"));
  EXPECT_THAT(
      refused([&] { Adadelta optimizer(parameters, AdadeltaOptions().rho(1.5)); }),
      HasSubstr("rho is 1.5"));
  EXPECT_THAT(
      refused([&] {
        Lion optimizer(parameters, LionOptions().betas({0.9, 1}));
      }),
      HasSubstr("beta2 is 1"));
  EXPECT_THAT(
      refused([&] { Adafactor optimizer(parameters, AdafactorOptions().d(0.5)); }),
      HasSubstr("update_clip is 0.5"));
  EXPECT_THAT(
      refused([&] {
        Lion optimizer(parameters);
        optimizer.add_param_group({parameters, std::make_unique<RAdamOptions>()});
      }),
      HasSubstr("[lion] a parameter group has options of radam"));
}

TEST(TorchOptim, RejectsSparseGradients) {
  const auto parameter = at::ones({3}).set_requires_grad(true);
  parameter.mutable_grad() = at::ones({3}).to_sparse();
  Lion optimizer(std::vector<at::Tensor>{parameter});
  EXPECT_THAT(
      error_of<ConfigError>([&] { optimizer.step(); }),
      HasSubstr("[lion] a gradient is sparse"));
}

}  // namespace tandem::torch_optim_test
