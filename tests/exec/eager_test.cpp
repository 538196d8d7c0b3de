#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/exec/gradient_hooks.h"
#include "tandem/exec/stage_executor.h"
#include "tests/core/expect.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

at::Tensor waves(double phase, const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    count *= dim;
  }
  return (at::linspace(0, 5, count, at::kDouble) + phase).sin().view(dims);
}

at::Tensor parameter(double phase, const std::vector<int64_t>& dims) {
  return waves(phase, dims).set_requires_grad(true);
}

// Notes each report, and what the gradient was then.
class Recorder : public GradientSink {
 public:
  explicit Recorder(Arena& gradients) : gradients_(gradients) {}

  void gradient_ready(size_t slot) override {
    names_.push_back(gradients_.layout().slots()[slot].name);
    values_.push_back(gradients_.view(slot).clone());
    slots_.push_back(slot);
  }

  const std::vector<std::string>& names() const {
    return names_;
  }
  // Whether no gradient changed after its report.
  bool all_were_final() const {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!values_[i].equal(gradients_.view(slots_[i]))) {
        return false;
      }
    }
    return true;
  }

 private:
  Arena& gradients_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> values_;
  std::vector<size_t> slots_;
};

// A model on arenas with its executor.
struct Rig {
  std::unique_ptr<Model> model;
  ModelArenas arenas;
  Recorder recorder;
  std::unique_ptr<StageExecutor> executor;

  explicit Rig(std::unique_ptr<Model> from, const StageOptions& options = {})
      : model(std::move(from)),
        arenas(model->parameters(), model->buffers()),
        recorder(arenas.gradients()),
        executor(make_eager_executor(*model, arenas, options)) {}

  at::Tensor step(const Batch& batch, const StepContext& context) {
    const auto sums = executor->forward(0, batch, context).sums.tensor();
    executor->backward(0, {}, context, recorder);
    return sums;
  }
};

std::unique_ptr<Model> small_net() {
  ModelOptions options;
  options.seed = 3;
  options.dtype = at::kDouble;
  return make_layered_model(
      {conv2d("conv", 1, 3, 3), relu(), max_pool2d(2), dropout(0.3), flatten(),
       linear("fc", 27, 4)},
      options);
}

Batch images(int64_t first, int64_t count) {
  Batch batch;
  batch.inputs = waves(static_cast<double>(first), {count, 1, 8, 8}).to(at::kFloat);
  batch.targets = at::arange(first, first + count).remainder(4);
  batch.first_position = first;
  batch.position_stride = 2;
  batch.global_count = count;
  return batch;
}

StepContext training(double loss_weight = 1) {
  StepContext context;
  context.seed = 11;
  context.epoch = 2;
  context.loss_weight = loss_weight;
  return context;
}

// Gradients by autograd alone, in order of registration.
std::vector<at::Tensor> plain_gradients(const Batch& batch, double weight) {
  const auto model = small_net();
  ForwardContext context;
  context.samples = {11, 2, batch.first_position, batch.position_stride};
  const auto output = model->forward(batch.inputs.to(at::kDouble), context);
  (summed_loss(LossKind::cross_entropy, output, batch.targets) * weight).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& entry : model->parameters()) {
    gradients.push_back(entry.tensor.grad());
  }
  return gradients;
}

void expect_gradients(const Rig& rig, const std::vector<at::Tensor>& expected) {
  const auto own = rig.model->parameters();
  ASSERT_EQ(own.size(), expected.size());
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_GT(expected[i].abs().max().item<double>(), 0) << own[i].name;
    EXPECT_TRUE(own[i].tensor.grad().allclose(expected[i], 1e-13, 1e-15))
        << own[i].name;
  }
}

TEST(EagerExecutor, GradientsEqualPlainAutogradTimesTheLossWeight) {
  for (const double weight : {1.0, 0.125, 1.0 / 3}) {
    Rig rig(small_net());
    rig.step(images(5, 6), training(weight));
    expect_gradients(rig, plain_gradients(images(5, 6), weight));
  }
}

TEST(EagerExecutor, SumsAreLossRightAnswersAndSamplesWithoutTheWeight) {
  Rig rig(small_net());
  const Batch batch = images(5, 6);
  const auto result = rig.executor->forward(0, batch, training(0.25));
  const auto& output = result.output;
  EXPECT_EQ(result.sums.tensor().scalar_type(), at::kDouble);
  EXPECT_FALSE(result.sums.tensor().requires_grad());
  EXPECT_DOUBLE_EQ(
      result.sums.values().loss,
      summed_loss(LossKind::cross_entropy, output, batch.targets).item<double>());
  EXPECT_EQ(
      result.sums.values().correct,
      output.argmax(1).eq(batch.targets).sum().item<int64_t>());
  EXPECT_EQ(result.sums.values().samples, 6);
}

TEST(EagerExecutor, GradientsOfMicroBatchesAddUp) {
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
  // From the front of the arena to its back, layer by layer.
  EXPECT_THAT(rig.recorder.names()[0], HasSubstr("fc"));
  EXPECT_THAT(rig.recorder.names()[1], HasSubstr("fc"));
  EXPECT_TRUE(rig.recorder.all_were_final());
  EXPECT_EQ(rig.executor->readiness(), Readiness::per_parameter);
}

TEST(EagerExecutor, ReportsSharedOnceAndUnusedAndFrozenNever) {
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
  summed_loss(LossKind::mse, y, batch.targets).backward();
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

TEST(EagerExecutor, EvaluationLeavesNoGraphAndTouchesNothingInFlight) {
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

TEST(EagerExecutor, GradientsUnsetByTheUserAreAttachedAgainFromZero) {
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

TEST(EagerExecutor, ErrorOfTheSinkArrivesAsItIs) {
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

TEST(GradientHooks, ReportAsLongAsTheyLive) {
  const auto model = small_net();
  ModelArenas arenas(model->parameters(), {});
  const auto backward = [&] {
    model->forward(waves(0, {2, 1, 8, 8}), {}).sum().backward();
  };
  std::vector<size_t> first;
  std::vector<size_t> second;
  {
    const GradientHooks outer(arenas, [&](size_t slot) { first.push_back(slot); });
    {
      const GradientHooks inner(arenas, [&](size_t slot) { second.push_back(slot); });
      backward();
    }
    backward();
  }
  backward();
  EXPECT_EQ(first.size(), 8u);
  EXPECT_THAT(second, UnorderedElementsAre(0, 1, 2, 3));
}

// Three stages of one parameter each, and the whole they are cut from.
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
  (summed_loss(LossKind::mse, y, batch.targets) * 0.5).backward();

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

TEST(EagerExecutor, TraceMarksTheBackwardOfEachNamedLayer) {
  Rig rig(small_net());
  Trace trace;
  StepContext context = training();
  context.trace = &trace;
  rig.step(images(5, 6), context);
  std::vector<std::string> names;
  for (const auto& event : trace.events()) {
    names.push_back(event.category + " " + event.name);
  }
  EXPECT_THAT(names, ElementsAre("compute backward fc", "compute backward conv"));
  expect_gradients(rig, plain_gradients(images(5, 6), 1));
}

TEST(ExecutorTable, MakesEachKind) {
  const auto model = make_model(ModelKind::net, {});
  ModelArenas arenas(model->parameters(), {});
  EXPECT_NE(make_executor(ExecutorKind::automatic, *model, arenas, {}), nullptr);
  for (const auto& entry : executor_table()) {
    try {
      EXPECT_EQ(make_executor(entry.kind, *model, arenas, {})->kind(), entry.kind);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("not in this build"));
    }
  }
}

TEST(EagerExecutor, CountsTheBytesItKeepsForBackward) {
  Rig rig(small_net());
  const int64_t samples = 3;
  const auto batch = images(0, samples);
  rig.executor->forward(0, batch, training());
  // The image, the convolution's output, which relu changes in place, what dropout
  // gives to the linear layer, and its output. The pool's output is gone.
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

}  // namespace
}  // namespace tandem
