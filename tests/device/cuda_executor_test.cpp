// The executor of kernels for GPUs, on a device in main memory, against autograd there:
// loss, every gradient, every buffer.

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/device/cuda_rig.h"

namespace tandem::cuda_executor_test {

using testing::AllOf;
using testing::HasSubstr;

class CudaModel : public testing::TestWithParam<std::tuple<Case, Arithmetic>> {
 protected:
  const Case& model() const {
    return std::get<0>(GetParam());
  }
  Batch batch(int64_t first, int64_t count) const {
    auto batch = batch_of(model(), first, count);
    if (model().loss == LossKind::mse) {
      // As eager wants them.
      batch.targets = batch.targets.to(std::get<1>(GetParam()).dtype);
    }
    return batch;
  }

  Pair pair_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

// With the same dropout, and also where the size of the batch changes.
TEST_P(CudaModel, StepsEqualAutogradsAndAddUp) {
  for (const auto& part : {batch(0, 5), batch(40, 3), batch(9, 5)}) {
    pair_.expect_sums(
        pair_.cuda.step(part, context_of(true)),
        pair_.eager.step(part, context_of(true)));
    pair_.expect_same_state();
  }
  EXPECT_EQ(pair_.cuda.sink.slots.size(), pair_.eager.sink.slots.size());
}

TEST_P(CudaModel, TheFirstBackwardOfAStepOverwritesGradientsAndOthersAdd) {
  pair_.each([&](Rig& rig) {
    for (size_t i = 0; i < rig.arenas.gradients().layout().slots().size(); ++i) {
      rig.arenas.gradients().view(i).fill_(std::numeric_limits<float>::quiet_NaN());
    }
    rig.executor->zero_gradients();
    rig.step(batch(0, 4), context_of(true));
    rig.step(batch(40, 3), context_of(true));
  });
  pair_.expect_same_state();
}

TEST_P(CudaModel, EvaluationEquals) {
  const auto part = batch(3, 5);
  pair_.each([&](Rig& rig) { rig.step(batch(0, 5), context_of(true)); });
  const auto found = pair_.cuda.executor->forward(0, part, context_of(false));
  const auto expected = pair_.eager.executor->forward(0, part, context_of(false));
  pair_.expect_close(found.output, expected.output, "output");
  pair_.expect_sums(found.sums, expected.sums);
  pair_.expect_same_state();
}

TEST_P(CudaModel, TwoMicroBatchesMayBeInFlight) {
  pair_.each([&](Rig& rig) {
    rig.executor->forward(0, batch(0, 4), context_of(true));
    rig.executor->forward(1, batch(20, 4), context_of(true));
    // Evaluation in between has memory of its own.
    rig.executor->forward(0, batch(50, 4), context_of(false));
    rig.executor->backward(1, {}, context_of(true), rig.sink);
    rig.executor->backward(0, {}, context_of(true), rig.sink);
  });
  pair_.expect_same_state();
  EXPECT_THROW(
      pair_.cuda.executor->backward(0, {}, context_of(true), pair_.cuda.sink),
      InternalError);
}

TEST_P(CudaModel, ABatchWithoutSamplesHasGradientsOfZero) {
  auto empty = batch(0, 2);
  empty.inputs = empty.inputs.slice(0, 0, 0);
  empty.targets = empty.targets.slice(0, 0, 0);
  pair_.cuda.arenas.gradients().view(0).fill_(7);
  pair_.cuda.executor->zero_gradients();
  EXPECT_EQ(pair_.cuda.step(empty, context_of(true)).values().samples, 0);
  EXPECT_EQ(
      pair_.cuda.arenas.gradients().segment(0).cpu().abs().max().item<double>(), 0);
}

TEST_P(CudaModel, AStepReadsNothingBackAndHasTheSameBitsTwice) {
  Pair again(model(), std::get<1>(GetParam()));
  std::vector<at::Tensor> gradients;
  for (Rig* rig : {&pair_.cuda, &again.cuda}) {
    NoSink sink;
    const auto part = batch(7, 4);
    const auto before = copies_from_far();
    const auto sums = rig->executor->forward(0, part, context_of(true)).sums;
    rig->executor->backward(0, {}, context_of(true), sink);
    EXPECT_EQ(copies_from_far(), before);
    EXPECT_NE(sums.values().loss, 0);
    EXPECT_EQ(copies_from_far(), before + (kCountsCopies ? 1 : 0));
    gradients.push_back(rig->arenas.gradients().segment(0).cpu());
  }
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
}

TEST_P(CudaModel, ReportsEachGradientOnceItIsFinal) {
  const auto part = batch(1, 3);
  pair_.cuda.step(part, context_of(true));
  EXPECT_TRUE(pair_.cuda.sink.all_were_final());
  // As they lie in the arena.
  std::vector<size_t> all(pair_.cuda.arenas.gradients().layout().slots().size());
  std::iota(all.begin(), all.end(), size_t{0});
  EXPECT_EQ(pair_.cuda.sink.slots, all);
}

std::string name_of(const testing::TestParamInfo<CudaModel::ParamType>& row) {
  return std::string(std::get<0>(row.param).name) + "_" + std::get<1>(row.param).name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaModel,
    testing::Combine(testing::ValuesIn(kModels), testing::Values(kFp64, kFp32)),
    name_of);

// Three stages: what the middle one gets and gives are activations and gradients.
TEST(CudaExecutor, StagesPassActivationsForwardAndGradientsBack) {
  const std::vector<std::vector<Layer>> parts = {
      {conv2d("conv1", 1, 3, 3), relu(), max_pool2d(2)},
      {dropout(0.3), conv2d("conv2", 3, 4, 3), relu(), flatten(), dropout(0.2)},
      {linear("fc", 16, 10), log_softmax()}};
  const Case of{"", {}, {1, 10, 10}, LossKind::nll};
  std::vector<std::vector<at::Tensor>> gradients(2);
  for (const bool far : {false, true}) {
    std::vector<std::unique_ptr<Rig>> stages;
    for (size_t i = 0; i < parts.size(); ++i) {
      auto options = Pair::options(of, Precision::fp64);
      options.first = i == 0;
      options.last = i + 1 == parts.size();
      ModelOptions model;
      model.dtype = at::kDouble;
      model.seed = i;
      stages.push_back(
          std::make_unique<Rig>(make_layered_model(parts[i], model), far, options));
    }
    Batch batch = batch_of(of, 0, 5);
    const auto context = context_of(true);
    StageResult result;
    for (const auto& stage : stages) {
      result = stage->executor->forward(0, batch, context);
      EXPECT_EQ(result.sums.empty(), stage != stages.back());
      batch.inputs = result.output;
    }
    at::Tensor grad;
    for (size_t i = stages.size(); i-- > 0;) {
      grad = stages[i]->executor->backward(0, grad, context, stages[i]->sink);
      EXPECT_EQ(grad.defined(), i > 0);
      if (grad.defined()) {
        gradients[far ? 1 : 0].push_back(grad.cpu());
      }
      gradients[far ? 1 : 0].push_back(stages[i]->arenas.gradients().segment(0).cpu());
    }
  }
  ASSERT_EQ(gradients[0].size(), 5u);
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    const auto scale = gradients[0][i].abs().max().item<double>();
    EXPECT_GT(scale, 0);
    EXPECT_LE(
        (gradients[1][i] - gradients[0][i]).abs().max().item<double>(), 1e-12 * scale);
  }
}

TEST(CudaExecutor, ALossScaleIsAFactorOnGradientsThatStaysOnTheDevice) {
  Pair pair(kModels[0], kFp64);
  const auto part = batch_of(kModels[0], 0, 4);
  pair.each([&](Rig& rig) {
    auto context = context_of(true);
    context.loss_scale = at::full({}, 8.0f).to(rig.arenas.device());
    rig.step(part, context);
  });
  pair.expect_same_state();
}

TEST(CudaExecutor, SeesParametersThatChanged) {
  Pair pair(kModels[0], kFp64);
  const auto part = batch_of(kModels[0], 0, 4);
  pair.each([&](Rig& rig) {
    rig.step(part, context_of(true));
    for (const auto& range : rig.arenas.parameters().layout().ranges()) {
      rig.arenas.parameters().slice(range).mul_(0.75);
      rig.executor->parameters_changed(range);
    }
    rig.executor->zero_gradients();
    rig.step(part, context_of(true));
  });
  pair.expect_same_state();
}

TEST(CudaExecutor, KnowsWhatItKeeps) {
  Pair pair(kModels[3], kFp32);
  auto& executor = *pair.cuda.executor;
  EXPECT_EQ(executor.kept_bytes(), 0);
  executor.forward(0, batch_of(kModels[3], 0, 5), context_of(true));
  // Images and outputs; flattened images are the same.
  EXPECT_EQ(executor.kept_bytes(), 5 * (147 + 10) * 4);
  executor.backward(0, {}, context_of(true), pair.cuda.sink);
  EXPECT_EQ(executor.kept_bytes(), 0);
}

// A captured pass is then the same one: nothing is taken or given back in a step.
TEST(CudaExecutor, ItsMemoryIsTheSameInEachStep) {
  Pair pair(kModels[0], kFp32);
  std::vector<const void*> outputs;
  for (int64_t step = 0; step < 3; ++step) {
    const auto result = pair.cuda.executor->forward(
        0, batch_of(kModels[0], 10 * step, 4), context_of(true));
    outputs.push_back(result.output.data_ptr());
    pair.cuda.executor->backward(0, {}, context_of(true), pair.cuda.sink);
  }
  EXPECT_THAT(outputs, testing::Each(outputs[0]));
}

std::string obstacle_of(
    std::vector<Layer> layers, const StageOptions& options = {},
    at::ScalarType dtype = at::kFloat, bool far = true) {
  ModelOptions model_options;
  model_options.dtype = dtype;
  const auto model = make_layered_model(std::move(layers), model_options);
  ModelArenas arenas(model->parameters(), model->buffers(), placed(far));
  return cuda_obstacle(*model, arenas, options);
}

TEST(CudaExecutor, SaysWhatItCannotRun) {
  const auto fc = linear("fc", 4, 4);
  EXPECT_EQ(obstacle_of({flatten(), fc}), "");
  EXPECT_THAT(obstacle_of({fc}, {}, at::kFloat, false), HasSubstr("in main memory"));
  auto strided = conv2d("c", 1, 1, 3);
  strided.stride = 2;
  EXPECT_THAT(
      obstacle_of({strided}),
      AllOf(HasSubstr("convolution c"), HasSubstr("stride of 2")));
  EXPECT_THAT(obstacle_of({conv2d("c", 1, 1, 7)}), HasSubstr("kernel of 7"));
  EXPECT_THAT(obstacle_of({conv2d("c", 1, 1, 3, 3)}), HasSubstr("padding of 3"));
  EXPECT_THAT(obstacle_of({fc, max_pool2d(3)}), HasSubstr("windows of 3"));
  EXPECT_THAT(obstacle_of({fc, dropout(1)}), HasSubstr("dropout probability"));
  EXPECT_THAT(obstacle_of({relu(), fc}), HasSubstr("a ReLU stands behind no"));
  EXPECT_THAT(obstacle_of({log_softmax(), fc}), HasSubstr("a log-softmax"));
  StageOptions options;
  options.loss.kind = LossKind::nll;
  EXPECT_EQ(obstacle_of({fc, log_softmax()}, options), "");
  options.last = false;
  EXPECT_THAT(obstacle_of({fc, log_softmax()}, options), HasSubstr("a log-softmax"));
  options = {};
  options.loss.kind = LossKind::mse;
  EXPECT_THAT(obstacle_of({fc, log_softmax()}, options), HasSubstr("a log-softmax"));
  options = {};
  options.stacked_statistics = true;
  EXPECT_THAT(obstacle_of({fc}, options), HasSubstr("other ranks' statistics"));
  options = {};
  options.loss.own = [](const at::Tensor& output, const at::Tensor&) {
    return output.sum();
  };
  EXPECT_THAT(obstacle_of({fc}, options), HasSubstr("a loss of its own"));
  options = {};
  options.precision = Precision::fp16;
  EXPECT_THAT(obstacle_of({fc}, options), HasSubstr("float16"));
  options.precision = Precision::bf16;
  EXPECT_THAT(obstacle_of({fc}, options, at::kDouble), HasSubstr("float64"));
  EXPECT_EQ(obstacle_of({fc}, options), "");
  EXPECT_THAT(
      error_of<ConfigError>([&] {
        Rig(make_layered_model({relu(), fc}, {}), true, {});
      }),
      AllOf(HasSubstr("executor cuda cannot run"), HasSubstr("--executor eager")));
}

TEST(CudaExecutor, RefusesBatchesThatDoNotFit) {
  Pair pair(kModels[0], kFp32);
  const auto refusal = [&](const Batch& batch) {
    return error_of<ConfigError>(
        [&] { pair.cuda.executor->forward(0, batch, context_of(true)); });
  };
  Case other = kModels[0];
  other.input = {1, 14, 13};
  EXPECT_THAT(
      refusal(batch_of(other, 0, 4)),
      AllOf(HasSubstr("fc1 takes 80"), HasSubstr("gets 100")));
  other.input = {3, 12, 13};
  EXPECT_THAT(refusal(batch_of(other, 0, 4)), HasSubstr("conv1 takes 1 channels"));
  auto fewer = batch_of(kModels[0], 0, 4);
  fewer.targets = fewer.targets.slice(0, 0, 3);
  EXPECT_THAT(refusal(fewer), AllOf(HasSubstr("4 targets"), HasSubstr("gets 3")));
}

}  // namespace tandem::cuda_executor_test
