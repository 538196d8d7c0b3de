// GradScaler and Autocast in custom loops.

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/exec/autocast.h"
#include "tandem/parallel/ddp/sharded_optimizer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parity/python.h"

namespace tandem::loop_scaler_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Makes six steps with a GradScaler, of which the third and fourth overflow, and prints
// the scale and the parameter after each.
constexpr const char* kPython = R"(
import torch
weight = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.Adam([weight], lr=0.1)
scale, growth = 1024.0, 0
for step in range(6):
    optimizer.zero_grad()
    bad = float("inf") if step in (2, 3) else 1.0
    loss = (weight * weight * torch.tensor([3.0, bad], dtype=torch.float64)).sum()
    (loss * scale).backward()
    weight.grad /= scale
    finite = bool(torch.isfinite(weight.grad).all())
    if finite:
        torch.nn.utils.clip_grad_norm_([weight], 2.0)
        optimizer.step()
    growth = growth + 1 if finite else 0
    if not finite:
        scale *= 0.5
    elif growth == 2:
        scale, growth = scale * 2, 0
    print(scale.hex(), *(x.hex() for x in weight.tolist()))
)";

TEST(LoopScaler, HasTheValuesOfPython) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto python = run_python({"-c", kPython});
  ASSERT_TRUE(python.status.ok()) << python.errors;
  std::istringstream words(python.output);
  const auto next = [&] {
    std::string word;
    words >> word;
    return std::strtod(word.c_str(), nullptr);
  };
  at::Tensor weight =
      at::ones({2}, at::kDouble).mul_(at::arange(1, 3, at::kDouble)).requires_grad_();
  const auto comm = make_single_communicator();
  DistributedDataParallel ddp({{"weight", weight}}, {}, *comm);
  ShardedOptimizer<torch::optim::Adam> optimizer(ddp, torch::optim::AdamOptions(0.1));
  GradScalerOptions options;
  options.initial_scale = 1024;
  options.growth_interval = 2;
  GradScaler scaler(options);
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    auto factors = at::full({2}, 3.0, at::kDouble);
    factors[1] = step == 2 || step == 3 ? kInf : 1.0;
    scaler.scale((weight * weight * factors).sum()).backward();
    scaler.unscale(optimizer);
    ddp.clip_grad_norm(2);
    EXPECT_EQ(scaler.step(optimizer), step != 2 && step != 3);
    scaler.update();
    EXPECT_EQ(scaler.scale(), next()) << step;
    EXPECT_NEAR(weight[0].item<double>(), next(), 1e-12) << step;
    EXPECT_NEAR(weight[1].item<double>(), next(), 1e-12) << step;
  }
  EXPECT_EQ(scaler.skipped_steps(), 2);
}

TEST(LoopScaler, RanksSkipAStepTogether) {
  for (const auto shard : {Sharding::none, Sharding::optimizer, Sharding::gradients}) {
    for (const int size : {2, 3, 4}) {
      const auto made = on_each_rank("thread", size, [&](Communicator& comm) {
        at::Tensor weight = at::ones({40}, at::kDouble).requires_grad_();
        DistributedDataParallelOptions options;
        options.shard = shard;
        DistributedDataParallel ddp({{"weight", weight}}, {}, comm, options);
        ShardedOptimizer<torch::optim::SGD> optimizer(
            ddp, torch::optim::SGDOptions(0.1));
        GradScaler scaler;
        std::vector<bool> steps;
        for (const int64_t bad : {-1, 0, 39}) {
          optimizer.zero_grad();
          auto factors = at::full({40}, 1.0 + comm.rank(), at::kDouble);
          if (bad >= 0) {
            factors[bad] = kInf;
          }
          scaler.scale((weight * factors).sum()).backward();
          steps.push_back(scaler.step(optimizer));
          scaler.update();
        }
        ddp.check();
        return steps;
      });
      EXPECT_THAT(made, testing::Each(ElementsAre(true, false, false)))
          << name_of(shard);
    }
  }
}

TEST(LoopScaler, RejectsWrongUse) {
  at::Tensor weight = at::ones({2}).requires_grad_();
  weight.mutable_grad() = at::ones({2});
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.1));
  GradScaler scaler;
  scaler.unscale(optimizer);
  EXPECT_THAT(
      error_of<Error>([&] { scaler.unscale(optimizer); }),
      HasSubstr("unscale() was called twice in a step"));
  scaler.update();
  at::Tensor half = at::ones({2}, at::kHalf).requires_grad_();
  half.mutable_grad() = at::ones({2}, at::kHalf);
  torch::optim::SGD of_half({half}, torch::optim::SGDOptions(0.1));
  EXPECT_THAT(
      error_of<ConfigError>([&] { scaler.step(of_half); }),
      HasSubstr("gradient of dtype Half, expected a dense one of float32"));
}

TEST(Autocast, ComputesProductsInBfloat16) {
  const auto a = at::full({4, 4}, 1.0F);
  {
    const Autocast autocast;
    EXPECT_EQ(at::mm(a, a).scalar_type(), at::kBFloat16);
    {
      const Autocast off(false);
      EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(at::mm(a, a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
}

}  // namespace tandem::loop_scaler_test
