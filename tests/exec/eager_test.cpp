#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"
#include "tests/exec/rig.h"

namespace tandem::eager_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

TEST(EagerExecutor, GradientsEqualPlainAutogradTimesTheLossWeight) {
  for (const double weight : {1.0, 0.125, 1.0 / 3}) {
    Rig rig(small_net());
    rig.step(images(5, 6), training(weight));
    expect_gradients(rig, plain_gradients(images(5, 6), weight));
  }
}

TEST(EagerExecutor, SumsAreUnweightedLossCorrectAndSamples) {
  Rig rig(small_net());
  const Batch batch = images(5, 6);
  const auto result = rig.executor->forward(0, batch, training(0.25));
  const auto& output = result.output;
  EXPECT_EQ(result.sums.tensor().scalar_type(), at::kDouble);
  EXPECT_FALSE(result.sums.tensor().requires_grad());
  EXPECT_DOUBLE_EQ(
      result.sums.values().loss,
      summed_loss({LossKind::cross_entropy}, output, batch.targets).item<double>());
  EXPECT_EQ(
      result.sums.values().metric,
      output.argmax(1).eq(batch.targets).sum().item<int64_t>());
  EXPECT_EQ(result.sums.values().samples, 6);
}

TEST(EagerExecutor, GradientsOfMicroBatchesAccumulate) {
  Rig rig(small_net());
  rig.step(images(5, 6), training(0.5));
  rig.step(images(40, 3), training(0.25));
  auto expected = plain_gradients(images(5, 6), 0.5);
  const auto more = plain_gradients(images(40, 3), 0.25);
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i].add_(more[i]);
  }
  expect_gradients(rig, expected);
}

TEST(EagerExecutor, ReportsEachUsedParameterOnceWhenItsGradientIsFinal) {
  Rig rig(small_net());
  rig.step(images(5, 6), training());
  EXPECT_THAT(
      rig.recorder.names(),
      UnorderedElementsAre("fc.bias", "fc.weight", "conv.bias", "conv.weight"));
  // Layer by layer, from the front of the arena to its end.
  EXPECT_THAT(rig.recorder.names()[0], HasSubstr("fc"));
  EXPECT_THAT(rig.recorder.names()[1], HasSubstr("fc"));
  EXPECT_TRUE(rig.recorder.all_were_final());
}

TEST(EagerExecutor, ReportsSharedParametersOnceAndUnusedAndFrozenOnesNever) {
  auto shared = parameter(0, {3, 3});
  auto unused = parameter(1, {3});
  auto frozen = waves(2, {3, 3});
  auto last = parameter(3, {3});
  StageOptions options;
  options.loss.kind = LossKind::mse;
  Rig rig(
      make_function_model(
          [=](const at::Tensor& x) {
            const auto once = x.matmul(shared).tanh().matmul(frozen);
            return once.matmul(shared) + last;
          },
          {{"shared", shared}, {"unused", unused}, {"frozen", frozen}, {"last", last}}),
      options);
  Batch batch;
  batch.inputs = waves(4, {5, 3});
  batch.targets = waves(5, {5, 3});
  for (int i = 0; i < 2; ++i) {
    rig.step(batch, training());
  }
  EXPECT_THAT(rig.recorder.names(), ElementsAre("last", "shared", "last", "shared"));
  EXPECT_EQ(unused.grad().abs().sum().item<double>(), 0);
  EXPECT_FALSE(frozen.grad().defined());

  auto copy = shared.detach().clone().set_requires_grad(true);
  const auto y =
      batch.inputs.matmul(copy).tanh().matmul(frozen).matmul(copy) + last.detach();
  summed_loss({LossKind::mse}, y, batch.targets).backward();
  EXPECT_TRUE(shared.grad().allclose(copy.grad() * 2, 1e-13));
}

TEST(EagerExecutor, TwoMicroBatchesMayBeInFlight) {
  Rig rig(small_net());
  const StepContext context = training();
  rig.executor->forward(0, images(5, 6), context);
  rig.executor->forward(1, images(40, 3), context);
  rig.executor->backward(1, {}, context, rig.recorder);
  expect_gradients(rig, plain_gradients(images(40, 3), 1));
  rig.arenas.gradients().zero();
  rig.executor->backward(0, {}, context, rig.recorder);
  expect_gradients(rig, plain_gradients(images(5, 6), 1));
  EXPECT_THROW(rig.executor->backward(0, {}, context, rig.recorder), InternalError);
}

TEST(EagerExecutor, EvaluationBuildsNoGraphAndKeepsMicroBatchesInFlight) {
  Rig rig(small_net());
  StepContext evaluating = training();
  evaluating.training = false;
  const auto result = rig.executor->forward(0, images(5, 6), evaluating);
  EXPECT_FALSE(result.output.requires_grad());
  EXPECT_FALSE(result.output.grad_fn());
  EXPECT_EQ(result.sums.values().samples, 6);
  EXPECT_THROW(rig.executor->backward(0, {}, evaluating, rig.recorder), InternalError);

  rig.executor->forward(0, images(5, 6), training());
  const auto again = rig.executor->forward(0, images(40, 3), evaluating);
  EXPECT_FALSE(again.output.requires_grad());
  rig.executor->backward(0, {}, training(), rig.recorder);
  expect_gradients(rig, plain_gradients(images(5, 6), 1));
}

TEST(EagerExecutor, GradientsThatTheUserClearedStartAtZero) {
  Rig rig(small_net());
  rig.step(images(40, 3), training());
  for (const auto& entry : rig.model->parameters()) {
    at::Tensor(entry.tensor).mutable_grad() = at::Tensor();
  }
  rig.step(images(5, 6), training());
  for (const auto& tensor : rig.arenas.tensors()) {
    EXPECT_TRUE(tensor.grad().is_alias_of(rig.arenas.gradients().segment(0)));
  }
  expect_gradients(rig, plain_gradients(images(5, 6), 1));
}

TEST(EagerExecutor, ErrorsOfTheSinkPassThrough) {
  class Failing : public GradientSink {
    void gradient_ready(size_t) override {
      throw CommError("all_reduce #7", "gone", 3);
    }
  };
  Rig rig(small_net());
  Failing failing;
  rig.executor->forward(0, images(5, 6), training());
  try {
    rig.executor->backward(0, {}, training(), failing);
    FAIL() << "no error";
  } catch (const CommError& error) {
    EXPECT_EQ(error.peer(), 3);
  }
}

// Three stages with one parameter each.
struct Stages {
  std::vector<at::Tensor> weights = {
      parameter(0, {3, 4}), parameter(1, {4, 5}), parameter(2, {5, 2})};

  static at::Tensor apply(const at::Tensor& weight, const at::Tensor& x) {
    return x.matmul(weight).tanh();
  }

  Rig rig(size_t stage) const {
    StageOptions options;
    options.loss.kind = LossKind::mse;
    options.first = stage == 0;
    options.last = stage == 2;
    const auto weight = weights[stage];
    return Rig(
        make_function_model(
            [weight](const at::Tensor& x) { return apply(weight, x); },
            {{"w" + std::to_string(stage), weight}}),
        options);
  }
};

TEST(EagerExecutor, StagesPassActivationsForwardAndGradientsBack) {
  Batch batch;
  batch.inputs = waves(4, {6, 3});
  batch.targets = waves(5, {6, 2});
  Stages copies;
  auto y = batch.inputs;
  for (const auto& weight : copies.weights) {
    y = Stages::apply(weight, y);
  }
  (summed_loss({LossKind::mse}, y, batch.targets) * 0.5).backward();

  Stages stages;
  Rig first = stages.rig(0);
  Rig middle = stages.rig(1);
  Rig last = stages.rig(2);
  const StepContext context = training(0.5);
  Batch passed = batch;
  for (Rig* rig : {&first, &middle, &last}) {
    const auto result = rig->executor->forward(0, passed, context);
    EXPECT_EQ(!result.sums.empty(), rig == &last);
    passed.inputs = result.output.detach();
  }
  EXPECT_TRUE(passed.inputs.equal(y));
  at::Tensor gradient;
  for (Rig* rig : {&last, &middle, &first}) {
    gradient = rig->executor->backward(0, gradient, context, rig->recorder);
    EXPECT_EQ(gradient.defined(), rig != &first);
    EXPECT_EQ(rig->recorder.names().size(), 1u);
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(stages.weights[i].grad().allclose(copies.weights[i].grad(), 1e-13))
        << i;
  }
}

TEST(EagerExecutor, TraceHasForwardAndBackwardOfEachLayer) {
  Rig rig(small_net());
  Trace trace;
  StepContext context = training();
  context.trace = &trace;
  rig.step(images(5, 6), context);
  std::vector<std::string> names;
  for (const auto& span : trace.compute_spans()) {
    names.push_back(span.name);
  }
  EXPECT_THAT(
      names, ElementsAre(
                 "forward", "forward conv", "forward relu_1", "forward max_pool2d_2",
                 "forward dropout_3", "forward flatten_4", "forward fc", "forward loss",
                 "backward", "backward loss", "backward fc", "backward flatten_4",
                 "backward dropout_3", "backward max_pool2d_2", "backward relu_1",
                 "backward conv"));
  expect_gradients(rig, plain_gradients(images(5, 6), 1));
}

TEST(EagerExecutor, KeptBytesCountsTensorsForBackward) {
  Rig rig(small_net());
  const int64_t samples = 3;
  const auto batch = images(0, samples);
  rig.executor->forward(0, batch, training());
  // The image, the convolution's output (relu changes it in place), the outputs of
  // dropout and of the linear layer. Autograd does not keep the pool's output.
  const int64_t of_one_batch =
      samples * (64 + 3 * 36 + 27 + 4) * static_cast<int64_t>(sizeof(double));
  EXPECT_EQ(rig.executor->kept_bytes(), of_one_batch);
  rig.executor->forward(1, batch, training());
  EXPECT_EQ(rig.executor->kept_bytes(), 2 * of_one_batch);
  auto evaluation = training();
  evaluation.training = false;
  rig.executor->forward(2, batch, evaluation);
  rig.executor->backward(0, {}, training(), rig.recorder);
  EXPECT_EQ(rig.executor->kept_bytes(), of_one_batch);
  rig.executor->backward(1, {}, training(), rig.recorder);
  EXPECT_EQ(rig.executor->kept_bytes(), 0);
}

}  // namespace tandem::eager_test
