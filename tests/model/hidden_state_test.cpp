#include "tandem/model/hidden_state.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tandem/model/model.h"

namespace tandem::hidden_state_test {

using testing::AllOf;
using testing::HasSubstr;

struct Norm {
  at::Tensor weight = at::ones({3}).set_requires_grad(true);
  at::Tensor mean = at::zeros({3});
  at::Tensor variance = at::ones({3});

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    return at::batch_norm(x, weight, {}, mean, variance, training, 0.1, 1e-5, false);
  }
};

// Returns the warnings of one forward pass in each mode. Each text is logged once per
// process.
std::string warnings_of(const std::unique_ptr<Model>& model) {
  const auto x = at::ones({4, 3});
  ForwardContext context;
  testing::internal::CaptureStderr();
  for (const bool training : {true, false}) {
    const c10::AutoGradMode grad(training);
    context.training = training;
    model->forward(x, context);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(HiddenState, RunningStatisticsOutsideTheBuffersAreAWarning) {
  const Norm first;
  const Norm second;
  const auto model = make_function_model(
      [=](const at::Tensor& x) { return second(first(x, true), true); },
      {{"first", first.weight}, {"second", second.weight}},
      {{"first.mean", first.mean}, {"first.variance", first.variance}}, [](bool) {});
  EXPECT_THAT(
      warnings_of(model),
      AllOf(
          HasSubstr("exports lack batch norm's running statistics"),
          HasSubstr("those of 1 of 2 layers"), HasSubstr("use make_module_model()")));
}

TEST(HiddenState, BatchNormThatStaysInTrainingModeIsAWarning) {
  const Norm norm;
  const auto model = make_function_model(
      [=](const at::Tensor& x) { return norm(x, true); }, {{"weight", norm.weight}},
      {{"mean", norm.mean}, {"variance", norm.variance}});
  EXPECT_THAT(
      warnings_of(model),
      AllOf(
          HasSubstr("evaluations normalize each batch by its own statistics"),
          HasSubstr("use make_module_model()")));
}

TEST(HiddenState, DropoutInEvaluationIsAWarning) {
  const auto weight = at::ones({3}).set_requires_grad(true);
  const auto model = make_function_model(
      [=](const at::Tensor& x) { return at::dropout(x * weight, 0.5, true); },
      {{"weight", weight}});
  EXPECT_THAT(
      warnings_of(model), HasSubstr("evaluations give a different result each time"));
}

TEST(HiddenState, ModelsThatHideNothingCauseNoWarning) {
  const Norm norm;
  const std::vector<NamedTensor> buffers = {
      {"mean", norm.mean}, {"variance", norm.variance}};
  const auto mode = std::make_shared<bool>(true);
  // Batch norm with both modes, always frozen, and without running statistics.
  const std::vector<std::function<std::unique_ptr<Model>()>> models = {
      [&] {
        return make_function_model(
            [=](const at::Tensor& x) {
              return at::dropout(norm(x, *mode), 0.5, *mode);
            },
            {{"weight", norm.weight}}, buffers,
            [mode](bool training) { *mode = training; });
      },
      [&] {
        return make_function_model(
            [=](const at::Tensor& x) { return norm(x, false); },
            {{"weight", norm.weight}}, buffers);
      },
      [&] {
        return make_function_model(
            [=](const at::Tensor& x) {
              return at::batch_norm(x, norm.weight, {}, {}, {}, true, 0.1, 1e-5, false);
            },
            {{"weight", norm.weight}});
      }};
  for (const auto& make : models) {
    EXPECT_EQ(warnings_of(make()), "");
  }
}

}  // namespace tandem::hidden_state_test
