// Errors of make_optimizer().

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/optim/small_arenas.h"

namespace tandem::optimizer_refusals_test {

using testing::HasSubstr;

std::string error_of(
    const OptimizerOptions& options, const std::vector<ParameterGroup>& groups) {
  Arenas arenas(at::kFloat);
  try {
    const auto made =
        make_optimizer(options, arenas.parameters, arenas.gradients, groups);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of(const OptimizerOptions& options) {
  return error_of(options, {ParameterGroup{}});
}

TEST(Optimizer, RejectsSettingsOfOtherOptimizers) {
  auto options = named("adam");
  options.momentum = 0.9;
  EXPECT_EQ(
      error_of(options),
      "[config] momentum is 0.9, which is for optimizer sgd, not adam; leave out "
      "--momentum, or change --optimizer");
  options = named("sgd");
  options.eps = 1e-8;
  EXPECT_THAT(
      error_of(options), HasSubstr("eps is 1e-08, which is for optimizer adam"));
  options = named("adadelta");
  options.amsgrad = true;
  EXPECT_THAT(
      error_of(options),
      HasSubstr("amsgrad is true, which is for optimizer adam, adamw, not adadelta"));
  options = named("adamw");
  options.rho = 0.8;
  EXPECT_THAT(
      error_of(options),
      HasSubstr("rho is 0.8, which is for optimizer adadelta, not adamw"));
}

TEST(Optimizer, RejectsValuesOutOfRange) {
  auto options = named("sgd");
  options.lr = -0.5;
  EXPECT_THAT(error_of(options), HasSubstr("lr is -0.5, expected 0 to"));
  options = named("sgd");
  options.weight_decay = std::nan("");
  EXPECT_THAT(error_of(options), HasSubstr("weight_decay is nan"));
  options = named("sgd");
  options.momentum = -0.9;
  EXPECT_THAT(error_of(options), HasSubstr("momentum is -0.9"));
  options = named("sgd");
  options.nesterov = true;
  EXPECT_THAT(error_of(options), HasSubstr("nesterov needs momentum"));
  options = named("adam");
  options.beta2 = 1;
  EXPECT_THAT(error_of(options), HasSubstr("beta2 is 1, expected at least 0 and"));
  options = named("adam");
  options.eps = 1e-60;  // 0 in float32
  EXPECT_THAT(error_of(options), HasSubstr("eps is 1e-60, expected 1e-37 to"));
  options = named("adadelta");
  options.rho = 1.5;
  EXPECT_THAT(error_of(options), HasSubstr("rho is 1.5, expected 0 to 1"));
  EXPECT_THAT(error_of(named("sgd"), {{-2, 1}}), HasSubstr("lr_scale is -2"));
  EXPECT_THAT(
      error_of(named("sgd"), {}),
      HasSubstr("parameter 'p0' is in group 0, but there are 0 groups"));
}

TEST(Optimizer, RejectsDtypesOtherThanFloatAndDouble) {
  Arenas arenas(at::kHalf);
  try {
    const auto made = make_optimizer(named("sgd"), arenas.parameters, arenas.gradients);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("dtype is Half, expected Float or Double"));
  }
}

}  // namespace tandem::optimizer_refusals_test
