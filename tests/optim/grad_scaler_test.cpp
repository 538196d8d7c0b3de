#include "tandem/optim/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::grad_scaler_test {

using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

// A parameter with elements {1, 2}, trained by SGD with lr 0.5.
struct Trained {
  at::Tensor weight;
  ModelArenas arenas;
  std::unique_ptr<Optimizer> optimizer;

  explicit Trained(
      const GradScalerOptions& options, const OptimizerOptions& optimizer_options,
      at::ScalarType dtype = at::kFloat)
      : weight(at::tensor({1.0, 2.0}, dtype).set_requires_grad(true)),
        arenas({{"weight", weight}}, {}),
        optimizer(make_scaled_optimizer(
            make_optimizer(optimizer_options, arenas.parameters(), arenas.gradients()),
            options)) {}

  GradScaler& scaler() {
    return *optimizer->scaler();
  }

  // Makes a step. If `bad` is not 0, it replaces the second scaled gradient.
  void step(double bad, int64_t number) {
    auto gradient = arenas.gradients().view(0);
    gradient.copy_(at::tensor({3.0, -1.0}) * scaler().scale());
    if (bad != 0) {
      gradient[1].fill_(bad);
    }
    StepScalars scalars{0.5, 1, number + 1};
    const auto& ranges = arenas.gradients().layout().ranges();
    scaler().end_step(scaler().unscale(arenas.gradients(), ranges), scalars);
    EXPECT_EQ(scalars.skip, bad != 0);
    optimizer->update(arenas.parameters().layout().ranges()[0], scalars);
  }
};

GradScalerOptions fixed_scale(double scale) {
  GradScalerOptions options;
  options.initial_scale = scale;
  options.dynamic = false;
  return options;
}

OptimizerOptions sgd() {
  OptimizerOptions options;
  options.weight_decay = 0;
  return options;
}

struct Row {
  // Second gradient of the step; 0 for a finite one.
  double bad;
  double scale;
  int64_t growth_tracker;
  double weight_0;
  double weight_1;
};

// Results of torch.amp.GradScaler("cpu", growth_interval=3) of PyTorch 2.15.
const Row kPython[] = {
    {0, 65536, 1, -0.5, 2.5},     {0, 65536, 2, -2, 3},
    {0, 131072, 0, -3.5, 3.5},    {0, 131072, 1, -5, 4},
    {kInf, 65536, 0, -5, 4},      {0, 65536, 1, -6.5, 4.5},
    {0, 65536, 2, -8, 5},         {std::nan(""), 32768, 0, -8, 5},
    {0, 32768, 1, -9.5, 5.5},     {0, 32768, 2, -11, 6},
    {0, 65536, 0, -12.5, 6.5},    {-kInf, 32768, 0, -12.5, 6.5},
    {kInf, 16384, 0, -12.5, 6.5}, {0, 16384, 1, -14, 7},
    {0, 16384, 2, -15.5, 7.5},    {0, 32768, 0, -17, 8},
    {0, 32768, 1, -18.5, 8.5},    {0, 32768, 2, -20, 9},
    {0, 65536, 0, -21.5, 9.5},    {0, 65536, 1, -23, 10},
};

TEST(GradScaler, MatchesPyTorchStepByStep) {
  GradScalerOptions options;
  options.growth_interval = 3;
  Trained trained(options, sgd());
  int64_t step = 0;
  for (const Row& row : kPython) {
    SCOPED_TRACE(step);
    trained.step(row.bad, step++);
    EXPECT_EQ(trained.scaler().scale(), row.scale);
    EXPECT_EQ(trained.scaler().state().view(1).item<int64_t>(), row.growth_tracker);
    EXPECT_EQ(trained.weight[0].item<double>(), row.weight_0);
    EXPECT_EQ(trained.weight[1].item<double>(), row.weight_1);
  }
  EXPECT_EQ(trained.scaler().skipped_steps(), 4);
}

TEST(GradScaler, HasPyTorchDefaults) {
  Trained trained({}, sgd());
  EXPECT_EQ(trained.scaler().scale(), 65536);
  for (int64_t step = 0; step < 1999; ++step) {
    trained.step(0, step);
  }
  EXPECT_EQ(trained.scaler().scale(), 65536);
  trained.step(0, 1999);
  EXPECT_EQ(trained.scaler().scale(), 131072);
  trained.step(kInf, 2000);
  EXPECT_EQ(trained.scaler().scale(), 65536);
}

// Expected values are from the same PyTorch program with other factors.
TEST(GradScaler, AcceptsFactorsThatAreNotPowersOfTwo) {
  GradScalerOptions options;
  options.initial_scale = 1000;
  options.growth_factor = 1.5;
  options.backoff_factor = 0.3;
  options.growth_interval = 2;
  Trained trained(options, sgd());
  trained.step(0, 0);
  EXPECT_EQ(trained.weight[0].item<float>(), -0.50000012f);
  trained.step(0, 1);
  EXPECT_EQ(trained.scaler().scale(), 1500);
  EXPECT_EQ(trained.weight[0].item<float>(), -2.00000024f);
  Trained shrinking(options, sgd());
  for (const double scale : {300.0, 90.0, 27.0}) {
    shrinking.step(kInf, 0);
    EXPECT_EQ(
        static_cast<float>(shrinking.scaler().scale()), static_cast<float>(scale));
  }
}

TEST(GradScaler, ScaleStaysWithinFloat32) {
  GradScalerOptions options;
  options.initial_scale = std::pow(2.0, 126);
  options.growth_interval = 1;
  Trained trained(options, sgd());
  for (int64_t step = 1; step <= 2; ++step) {
    StepScalars scalars{0.5, 1, step};
    trained.scaler().end_step(true, scalars);
    EXPECT_EQ(trained.scaler().scale(), std::pow(2.0, 127));
  }
}

TEST(GradScaler, ThrowsIfGradientsOverflowAtAnyScale) {
  Trained trained({}, sgd());
  const auto shrink = [&] {
    for (int step = 0; step < 300; ++step) {
      trained.step(kInf, step);
    }
    trained.scaler().check_skipped_steps(300);
  };
  EXPECT_THAT(error_of<Error>(shrink), HasSubstr("not finite at any loss scale"));
  EXPECT_GT(trained.scaler().skipped_steps(), 100);
}

TEST(GradScaler, FixedScaleIsConstantAndSkipsSteps) {
  Trained trained(fixed_scale(1000), sgd(), at::kDouble);
  trained.step(0, 0);
  EXPECT_NEAR(trained.weight[0].item<double>(), -0.5, 1e-15);
  trained.step(kInf, 1);
  EXPECT_NEAR(trained.weight[0].item<double>(), -0.5, 1e-15);
  EXPECT_EQ(trained.scaler().scale(), 1000);
  EXPECT_EQ(trained.scaler().skipped_steps(), 1);
}

// In the lanes of a vector, after them, and in every segment.
TEST(GradScaler, DetectsNonFiniteValuesInEveryElement) {
  const auto a = at::zeros({71}).set_requires_grad(true);
  const auto b = at::zeros({5}, at::kDouble).set_requires_grad(true);
  ModelArenas arenas({{"a", a}, {"b", b}}, {});
  GradScaler scaler((GradScalerOptions()));
  auto& gradients = arenas.gradients();
  const auto is_finite = [&] {
    return scaler.unscale(gradients, gradients.layout().ranges());
  };
  EXPECT_TRUE(is_finite());
  for (const size_t slot : {0, 1}) {
    auto view = gradients.view(slot);
    for (int64_t i = 0; i < view.numel(); ++i) {
      for (const double bad : {kInf, -kInf, std::nan("")}) {
        gradients.zero();
        view[i].fill_(bad);
        EXPECT_FALSE(is_finite()) << slot << " " << i << " " << bad;
      }
    }
  }
  gradients.zero();
  gradients.view(0).fill_(std::numeric_limits<float>::max());
  EXPECT_TRUE(is_finite());
}

// Adam divides by 1 - beta^step, so a skipped step must not count.
TEST(GradScaler, SkippedStepsDoNotCount) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::adam;
  Trained with_gaps({}, adam);
  Trained without({}, adam);
  int64_t step = 0;
  for (const double bad : {kInf, 0.0, 0.0, kInf, 0.0}) {
    with_gaps.step(bad, step++);
  }
  for (step = 0; step < 3; ++step) {
    without.step(0, step);
  }
  EXPECT_TRUE(with_gaps.weight.equal(without.weight));
}

TEST(GradScaler, StateIsPartOfTheOptimizerState) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::adam;
  Trained trained({}, adam);
  const auto state = trained.optimizer->state();
  ASSERT_EQ(state.size(), 3u);
  EXPECT_EQ(state.back()->name(), "grad_scaler");
  EXPECT_EQ(state.back()->layout().slots()[0].name, "scale");
  // The scaler uses values that a checkpoint writes to its state.
  state.back()->view(0).fill_(8);
  EXPECT_EQ(trained.scaler().scale(), 8);
}

TEST(GradScaler, OptionsFollowTheLossScaleSetting) {
  ExecOptions exec;
  EXPECT_FALSE(scaler_options(exec).has_value());
  exec.loss_scale = ExecOptions::kDynamicScale;
  EXPECT_TRUE(scaler_options(exec)->dynamic);
  exec.loss_scale = 128;
  EXPECT_EQ(scaler_options(exec)->initial_scale, 128);
  EXPECT_FALSE(scaler_options(exec)->dynamic);
}

}  // namespace tandem::grad_scaler_test
