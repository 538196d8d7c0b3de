// Errors of make_optimizer().

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/optim/small_arenas.h"

namespace tandem::optimizer_refusals_test {

using testing::HasSubstr;

std::string refusal(
    const OptimizerOptions& options,
    const std::vector<ParameterGroup>& groups = {ParameterGroup{}},
    at::ScalarType dtype = at::kFloat) {
  Arenas arenas(dtype);
  return error_of<ConfigError>([&] {
    return make_optimizer(options, arenas.parameters, arenas.gradients, groups);
  });
}

struct Refused {
  const char* optimizer;
  std::function<void(OptimizerOptions&)> change;
  const char* error;
};

TEST(Optimizer, RejectsOptions) {
  using O = OptimizerOptions;
  const Refused rows[] = {
      // Settings of other optimizers.
      {"adam", [](O& o) { o.momentum = 0.9; }, "momentum is 0.9, which is for"},
      {"sgd", [](O& o) { o.eps = 1e-8; }, "eps is 1e-08, which is for optimizer adam"},
      {"adadelta", [](O& o) { o.amsgrad = true; }, "for optimizer adam, adamw, not"},
      {"adamw", [](O& o) { o.rho = 0.8; }, "rho is 0.8, which is for"},
      // Values out of range. 1e-60 is 0 in float32.
      {"sgd", [](O& o) { o.lr = -0.5; }, "lr is -0.5, expected 0 to"},
      {"sgd", [](O& o) { o.weight_decay = std::nan(""); }, "weight_decay is nan"},
      {"sgd", [](O& o) { o.momentum = -0.9; }, "momentum is -0.9"},
      {"sgd", [](O& o) { o.nesterov = true; }, "nesterov needs momentum"},
      {"sgd", [](O& o) { o.ema_decay = -0.1; }, "ema_decay is -0.1, expected 0 to 1"},
      {"sgd", [](O& o) { o.ema_decay = 1.5; }, "ema_decay is 1.5, expected 0 to 1"},
      {"adam", [](O& o) { o.beta2 = 1; }, "beta2 is 1, expected at least 0 and"},
      {"adam", [](O& o) { o.eps = 1e-60; }, "eps is 1e-60, expected 1e-37 to"},
      {"adadelta", [](O& o) { o.rho = 1.5; }, "rho is 1.5, expected 0 to 1"},
      {"lion", [](O& o) { o.eps = 1e-8; }, "eps is 1e-08, which is for optimizer"},
      {"sgd", [](O& o) { o.beta2 = 0.99; }, "beta2 is 0.99, which is for optimizer"},
      {"adam", [](O& o) { o.alpha = 0.9; }, "which is for optimizer rmsprop, not adam"},
      {"nadam", [](O& o) { o.centered = true; }, "for optimizer rmsprop, not nadam"},
      {"adam", [](O& o) { o.ns_steps = 3; }, "for optimizer muon, not adam"},
      {"lion", [](O& o) { o.beta1 = 1; }, "beta1 is 1, expected at least 0 and below"},
      {"lamb", [](O& o) { o.beta2 = 1; }, "beta2 is 1, expected at least 0 and below"},
      {"radam", [](O& o) { o.beta2 = 1.5; },
       "beta2 is 1.5, expected 0 to 1, or -1 for the optimizer's default; change "
       "--beta2"},
      {"adagrad", [](O& o) { o.lr_decay = -1; }, "lr_decay is -1.0, expected 0 to"},
      {"adafactor", [](O& o) { o.beta2_decay = 0.8; },
       "beta2_decay is 0.8, expected -1e+37 to 0"},
      {"adafactor", [](O& o) { o.update_clip = 0.5; },
       "update_clip is 0.5, expected 1"},
      {"muon", [](O& o) { o.ns_steps = 0; }, "ns_steps is 0, expected 1 to 99"}};
  for (const auto& row : rows) {
    auto options = named(row.optimizer);
    row.change(options);
    EXPECT_THAT(refusal(options), HasSubstr(row.error));
  }
}

// config.toml of earlier releases has 0.999 for every optimizer.
TEST(Optimizer, AcceptsTheFormerDefaultOfBeta2) {
  auto options = named("sgd");
  options.beta2 = 0.999;
  EXPECT_EQ(refusal(options), "(no error)");
}

TEST(Optimizer, RejectsGroups) {
  EXPECT_THAT(refusal(named("sgd"), {{-2, 1}}), HasSubstr("lr_scale is -2"));
  EXPECT_THAT(
      refusal(named("sgd"), {}),
      HasSubstr("parameter 'p0' is in group 0, but there are 0 groups"));
}

TEST(Optimizer, RejectsDtypesOtherThanFloatAndDouble) {
  EXPECT_THAT(
      refusal(named("sgd"), {ParameterGroup{}}, at::kHalf),
      HasSubstr("dtype is Half, expected Float or Double"));
}

}  // namespace tandem::optimizer_refusals_test
