// Optimizers on a device, as LibTorch operators, give the results of the fused CPU
// passes except for the last bits.

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "tandem/optim/optimizer.h"
#include "tests/device/far_device.h"
#include "tests/named.h"

namespace tandem::far_optimizer_test {

constexpr int64_t kSize = 100;
constexpr int64_t kSteps = 5;

struct Row {
  const char* name;
  OptimizerKind kind;
  void (*change)(OptimizerOptions& options);
};

using tandem::operator<<;

class FarOptimizers : public testing::TestWithParam<Row> {
 protected:
  // Returns the parameters after each step.
  static std::vector<at::Tensor> train(at::ScalarType dtype, at::Device device) {
    OptimizerOptions options;
    options.kind = GetParam().kind;
    options.weight_decay = 0.1;
    GetParam().change(options);
    ModelArenaOptions there;
    there.device = device;
    const auto weight =
        at::linspace(-1, 1, kSize, dtype).view({20, 5}).set_requires_grad(true);
    ModelArenas arenas({{"weight", weight}}, {}, there);
    const auto optimizer =
        make_optimizer(options, arenas.parameters(), arenas.gradients());
    std::vector<at::Tensor> values;
    for (int64_t step = 1; step <= kSteps; ++step) {
      auto gradient = arenas.gradients().view(0);
      gradient.copy_(at::linspace(2, -1, kSize, dtype).mul(step).sin().view({20, 5}));
      optimizer->update(
          arenas.parameters().layout().ranges()[0], {0.01, 0.5, step, false});
      values.push_back(arenas.parameters().view(0).cpu().clone());
    }
    return values;
  }
};

TEST_P(FarOptimizers, EqualTheFusedPass) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto expected = train(dtype, at::kCPU);
    const auto found = train(dtype, kFar);
    const double tolerance = dtype == at::kFloat ? 1e-5 : 1e-13;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(found[i].allclose(expected[i], tolerance, tolerance)) << i;
    }
    EXPECT_FALSE(found[0].equal(found[1])) << "a step changes them";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, FarOptimizers,
    testing::Values(
        Row{"sgd", OptimizerKind::sgd, [](OptimizerOptions&) {}},
        Row{"sgd_momentum_dampening", OptimizerKind::sgd,
            [](OptimizerOptions& options) {
              options.momentum = 0.9;
              options.dampening = 0.3;
            }},
        Row{"sgd_nesterov", OptimizerKind::sgd,
            [](OptimizerOptions& options) {
              options.momentum = 0.9;
              options.nesterov = true;
            }},
        Row{"adam", OptimizerKind::adam, [](OptimizerOptions&) {}},
        Row{"adam_amsgrad", OptimizerKind::adam,
            [](OptimizerOptions& options) { options.amsgrad = true; }},
        Row{"adamw", OptimizerKind::adamw, [](OptimizerOptions&) {}},
        Row{"adadelta", OptimizerKind::adadelta, [](OptimizerOptions&) {}},
        Row{"adagrad", OptimizerKind::adagrad, [](OptimizerOptions&) {}},
        Row{"rmsprop", OptimizerKind::rmsprop, [](OptimizerOptions&) {}},
        Row{"rmsprop_centered_momentum", OptimizerKind::rmsprop,
            [](OptimizerOptions& options) {
              options.centered = true;
              options.momentum = 0.9;
            }},
        Row{"adamax", OptimizerKind::adamax, [](OptimizerOptions&) {}},
        Row{"nadam", OptimizerKind::nadam, [](OptimizerOptions&) {}},
        Row{"radam", OptimizerKind::radam, [](OptimizerOptions&) {}},
        Row{"lion", OptimizerKind::lion, [](OptimizerOptions&) {}},
        Row{"lamb", OptimizerKind::lamb, [](OptimizerOptions&) {}},
        Row{"adafactor", OptimizerKind::adafactor, [](OptimizerOptions&) {}},
        Row{"muon", OptimizerKind::muon, [](OptimizerOptions&) {}}),
    testing::PrintToStringParamName());

}  // namespace tandem::far_optimizer_test
