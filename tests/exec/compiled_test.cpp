// The compiled executor against autograd: loss, all gradients and all buffers.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"
#include "tests/core/expect.h"
#include "tests/exec/rig.h"

namespace tandem::compiled_test {

using testing::AllOf;
using testing::HasSubstr;

// Tolerance relative to the largest element, for float32, another order of sums and
// Winograd's transforms.
constexpr double kTolerance = 2e-5;

StepContext context_of(bool training) {
  StepContext context;
  context.seed = 11;
  context.epoch = 2;
  context.loss_weight = 1.0 / 7;
  context.training = training;
  return context;
}

void expect_close(
    const at::Tensor& found, const at::Tensor& expected, const std::string& what,
    double least_scale = 0) {
  const double largest = std::max(expected.abs().max().item<double>(), least_scale);
  EXPECT_GT(largest, 0) << what;
  EXPECT_LE((found - expected).abs().max().item<double>(), kTolerance * largest)
      << what;
}

void expect_same_state(Rig& found, Rig& expected) {
  const auto& slots = expected.arenas.gradients().layout().slots();
  // The gradient of a bias before batch norm consists of rounding errors.
  const double some = expected.arenas.gradients().segment(0).abs().max().item<double>();
  for (size_t i = 0; i < slots.size(); ++i) {
    expect_close(
        found.arenas.gradients().view(i), expected.arenas.gradients().view(i),
        "gradient of " + slots[i].name, some);
  }
  const auto& buffers = expected.arenas.buffers().layout().slots();
  for (size_t i = 0; i < buffers.size(); ++i) {
    expect_close(
        found.arenas.buffers().view(i), expected.arenas.buffers().view(i),
        buffers[i].name);
  }
}

struct Case {
  const char* name;
  const char* model;
  std::vector<int64_t> shape;
};

void PrintTo(const Case& row, std::ostream* out) {
  *out << row.name;
}

class OnednnModel : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Model> model() const {
    ModelOptions options;
    options.input = GetParam().shape;
    options.seed = 3;
    return make_model(*find_choice<ModelKind>(GetParam().model), options);
  }
  StageOptions stage() const {
    StageOptions options;
    options.loss.kind = row_of(*find_choice<ModelKind>(GetParam().model)).loss;
    return options;
  }
  Batch batch(int64_t first, int64_t count) const {
    return image_batch(GetParam().shape, first, count);
  }

  Rig compiled_{model(), &make_compiled_executor, stage()};
  Rig eager_{model(), &make_eager_executor, stage()};
};

TEST_P(OnednnModel, StepsEqualAutogradWithChangingBatchSize) {
  // The gradients of the three batches accumulate.
  for (const auto& part : {batch(0, 6), batch(40, 3), batch(9, 6)}) {
    const auto found = compiled_.step(part, context_of(true));
    const auto expected = eager_.step(part, context_of(true));
    expect_close(found, expected, "sums");
    expect_same_state(compiled_, eager_);
  }
  EXPECT_EQ(compiled_.recorder.slots().size(), eager_.recorder.slots().size());
}

TEST_P(OnednnModel, FirstBackwardOverwritesGradientsAndLaterOnesAdd) {
  const auto garbage = std::numeric_limits<float>::quiet_NaN();
  for (int step = 0; step < 2; ++step) {
    for (Rig* rig : {&compiled_, &eager_}) {
      for (size_t i = 0; i < rig->arenas.gradients().layout().slots().size(); ++i) {
        rig->arenas.gradients().view(i).fill_(garbage);
      }
      rig->executor->zero_gradients();
      rig->step(batch(0, 6), context_of(true));
      rig->step(batch(40, 3), context_of(true));
    }
    expect_same_state(compiled_, eager_);
  }
}

TEST_P(OnednnModel, EvaluationEqualsEager) {
  const auto part = batch(3, 5);
  const auto found = compiled_.executor->forward(0, part, context_of(false));
  const auto expected = eager_.executor->forward(0, part, context_of(false));
  expect_close(found.output, expected.output, "output");
  expect_close(found.sums.tensor(), expected.sums.tensor(), "sums");
}

TEST_P(OnednnModel, UsesChangedParameters) {
  compiled_.step(batch(0, 6), context_of(true));
  for (Rig* rig : {&compiled_, &eager_}) {
    for (const auto& range : rig->arenas.parameters().layout().ranges()) {
      rig->arenas.parameters().slice(range).mul_(0.75);
      rig->executor->parameters_changed(range);
    }
    rig->arenas.gradients().zero();
  }
  const auto found = compiled_.step(batch(7, 6), context_of(true));
  expect_close(found, eager_.step(batch(7, 6), context_of(true)), "sums");
}

TEST_P(OnednnModel, TwoMicroBatchesMayBeInFlight) {
  for (Rig* rig : {&compiled_, &eager_}) {
    rig->executor->forward(0, batch(0, 6), context_of(true));
    rig->executor->forward(1, batch(20, 6), context_of(true));
    rig->executor->backward(1, {}, context_of(true), rig->recorder);
    rig->executor->backward(0, {}, context_of(true), rig->recorder);
  }
  expect_same_state(compiled_, eager_);
  EXPECT_THROW(
      compiled_.executor->backward(0, {}, context_of(true), compiled_.recorder),
      InternalError);
}

// Freezes the parameters whose names begin with one of `starts`.
std::unique_ptr<Model> frozen(
    std::unique_ptr<Model> model, const std::vector<std::string>& starts) {
  for (const auto& [name, tensor] : model->parameters()) {
    for (const auto& start : starts) {
      if (name.rfind(start, 0) == 0) {
        tensor.set_requires_grad(false);
      }
    }
  }
  return model;
}

// Returns the names of the first k layers with parameters for all k, then the name of
// each layer, then of one parameter of the first and of the last layer.
std::vector<std::vector<std::string>> ways_to_freeze(const Model& model) {
  std::vector<std::string> layers;
  for (const auto& entry : model.parameters()) {
    const auto layer = entry.name.substr(0, entry.name.rfind('.') + 1);
    if (layers.empty() || layers.back() != layer) {
      layers.push_back(layer);
    }
  }
  std::vector<std::vector<std::string>> ways;
  for (size_t k = 1; k < layers.size(); ++k) {
    ways.emplace_back(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(k));
    ways.push_back({layers[k]});
  }
  ways.push_back({layers.front() + "weight"});
  ways.push_back({layers.back() + "bias"});
  return ways;
}

// Returns the gradients of two batches, the buffers, the sums and the reported slots,
// by name. Frozen parameters have no gradient.
std::map<std::string, at::Tensor> results_of(Rig& rig, const Batch& a, const Batch& b) {
  std::map<std::string, at::Tensor> results;
  results["sums"] = rig.step(a, context_of(true)) + rig.step(b, context_of(true));
  const Arena& gradients = rig.arenas.gradients();
  for (const size_t slot : rig.recorder.slots()) {
    results["gradient of " + gradients.layout().slots()[slot].name] =
        gradients.view(slot);
  }
  const Arena& buffers = rig.arenas.buffers();
  for (size_t i = 0; i < buffers.layout().slots().size(); ++i) {
    results[buffers.layout().slots()[i].name] = buffers.view(i);
  }
  return results;
}

TEST_P(OnednnModel, FrozenLayersDoNotChangeTheOtherGradients) {
  const Numerics all[] = {
      {},
      {at::kFloat, at::kBFloat16},
      {at::kFloat, at::kFloat, Rounding::bf16},
      {at::kFloat, at::kFloat, Rounding::fp16_o2}};
  for (const auto& numerics : all) {
    StageOptions options = stage();
    options.numerics = numerics;
    Rig whole(model(), &make_compiled_executor, options);
    const auto expected = results_of(whole, batch(0, 6), batch(9, 6));
    for (const auto& way : ways_to_freeze(*whole.model)) {
      Rig rig(frozen(model(), way), &make_compiled_executor, options);
      size_t trained = 0;
      for (const auto& tensor : rig.arenas.tensors()) {
        trained += tensor.requires_grad() ? 1 : 0;
      }
      const auto found = results_of(rig, batch(0, 6), batch(9, 6));
      EXPECT_EQ(rig.recorder.slots().size(), 2 * trained) << way[0];
      for (const auto& [name, values] : found) {
        EXPECT_TRUE(values.equal(expected.at(name))) << name << ", frozen " << way[0];
      }
    }
  }
}

TEST_P(OnednnModel, UsesChangedFrozenParameters) {
  const auto changed = [&](MakeExecutor make) {
    Rig rig(frozen(model(), ways_to_freeze(*model()).front()), make, stage());
    rig.step(batch(0, 6), context_of(true));
    for (const auto& range : rig.arenas.parameters().layout().ranges()) {
      rig.arenas.parameters().slice(range).mul_(0.75);
      rig.executor->parameters_changed(range);
    }
    return rig.step(batch(7, 6), context_of(true));
  };
  expect_close(changed(&make_compiled_executor), changed(&make_eager_executor), "sums");
}

const auto kZoo = testing::Values(
    Case{"net", "net", {1, 28, 28}}, Case{"convnet", "convnet", {1, 28, 28}},
    Case{"net5x5", "net5x5", {1, 28, 28}}, Case{"simplenet", "simplenet", {1, 28, 28}},
    Case{"lenet3x3", "lenet3x3", {1, 32, 32}},
    Case{"convnet_bn", "convnet_bn", {1, 28, 28}},
    Case{"net_colour", "net", {3, 32, 24}},
    Case{"convnet_bn_colour", "convnet_bn", {3, 29, 35}},
    Case{"net5x5_colour", "net5x5", {3, 40, 31}});

std::string name_of(const testing::TestParamInfo<Case>& row) {
  return row.param.name;
}

INSTANTIATE_TEST_SUITE_P(Zoo, OnednnModel, kZoo, name_of);

// In bf16 a ReLU or a pool may pass a gradient to another input than in float32, so the
// tolerance is autocast's distance from float32. CMakeLists.txt also runs these tests
// with the instruction sets of CPUs without AMX and without bf16.
class OnednnBf16Model : public OnednnModel {
 protected:
  void SetUp() override {
    StageOptions options = stage();
    options.numerics.product = at::kBFloat16;
    bf16_ = std::make_unique<Rig>(model(), &make_compiled_executor, options);
    autocast_ = std::make_unique<Rig>(model(), &make_eager_executor, options);
  }

  template <typename Steps>
  void each(const Steps& steps) {
    for (Rig* rig : {bf16_.get(), autocast_.get(), &eager_}) {
      steps(*rig);
    }
  }

  void expect_near(
      const at::Tensor& found, const at::Tensor& autocast, const at::Tensor& expected,
      double norm, const std::string& what) {
    const double allowed = 2 * (autocast - expected).norm().item<double>() + 0.1 * norm;
    EXPECT_LE((found - expected).norm().item<double>(), allowed) << what;
  }

  void expect_near_gradients() {
    const Arena& expected = eager_.arenas.gradients();
    const auto& slots = expected.layout().slots();
    // The gradient of a bias before batch norm consists of rounding errors.
    const double some = 0.01 * expected.segment(0).norm().item<double>();
    for (size_t i = 0; i < slots.size(); ++i) {
      expect_near(
          bf16_->arenas.gradients().view(i), autocast_->arenas.gradients().view(i),
          expected.view(i), std::max(some, expected.view(i).norm().item<double>()),
          "gradient of " + slots[i].name);
    }
  }

  std::unique_ptr<Rig> bf16_;
  std::unique_ptr<Rig> autocast_;
};

TEST_P(OnednnBf16Model, StepsAreAsCloseToFloat32AsAutocast) {
  for (const auto& part : {batch(0, 6), batch(40, 3), batch(9, 6)}) {
    std::vector<at::Tensor> sums;
    each([&](Rig& rig) { sums.push_back(rig.step(part, context_of(true))); });
    // Element 0 is the loss; element 1 counts correct samples.
    EXPECT_NEAR(
        sums[0][0].item<double>(), sums[2][0].item<double>(),
        0.01 * sums[2][0].item<double>());
    expect_near_gradients();
  }
}

TEST_P(OnednnBf16Model, FirstBackwardOverwritesGradientsThenTheyAccumulate) {
  each([&](Rig& rig) {
    rig.step(batch(0, 6), context_of(true));
    rig.executor->zero_gradients();
    rig.step(batch(40, 6), context_of(true));
    rig.step(batch(0, 6), context_of(true));
  });
  expect_near_gradients();
}

INSTANTIATE_TEST_SUITE_P(Zoo, OnednnBf16Model, kZoo, name_of);

// Both executors round to fp16 at the same places, so they differ from each other by
// less than from float32.
class OnednnFp16Model : public OnednnModel {
 protected:
  void expect_same_gradients(Rounding level) {
    StageOptions options = stage();
    options.numerics.rounding = level;
    Rig compiled(model(), &make_compiled_executor, options);
    Rig eager(model(), &make_eager_executor, options);
    for (const auto& part : {batch(0, 6), batch(40, 3), batch(9, 6)}) {
      const auto sums = compiled.step(part, context_of(true));
      EXPECT_TRUE(at::allclose(sums, eager.step(part, context_of(true)), 2e-3, 1e-3));
      eager_.step(part, context_of(true));
    }
    const auto found = compiled.arenas.gradients().segment(0);
    const auto expected = eager.arenas.gradients().segment(0);
    const auto apart = (found - expected).norm().item<double>();
    const auto rounding =
        (expected - eager_.arenas.gradients().segment(0)).norm().item<double>();
    EXPECT_GT(rounding, 0);
    EXPECT_LT(apart, 0.7 * rounding);
    EXPECT_LT(apart, 0.02 * expected.norm().item<double>());
    RecordProperty("difference_per_rounding", std::to_string(apart / rounding));
  }
};

TEST_P(OnednnFp16Model, GradientsOfO1EqualEager) {
  expect_same_gradients(Rounding::fp16_o1);
}

TEST_P(OnednnFp16Model, GradientsOfO2EqualEager) {
  expect_same_gradients(Rounding::fp16_o2);
}

INSTANTIATE_TEST_SUITE_P(Zoo, OnednnFp16Model, kZoo, name_of);

std::vector<Layer> half(bool first) {
  if (first) {
    return {conv2d("conv", 1, 16, 3), relu(), max_pool2d(2)};
  }
  return {dropout(0.3), flatten(), linear("fc", 2704, 10), log_softmax()};
}

TEST(Onednn, StagesPassActivationsForwardAndGradientsBack) {
  at::Tensor last_gradient[2];
  at::Tensor first_gradient[2];
  const MakeExecutor makers[] = {&make_compiled_executor, &make_eager_executor};
  for (size_t i = 0; i < 2; ++i) {
    StageOptions first;
    first.last = false;
    StageOptions last;
    last.first = false;
    last.loss.kind = LossKind::nll;
    Rig front(make_layered_model(half(true), {}), makers[i], first);
    Rig back(make_layered_model(half(false), {}), makers[i], last);
    Batch batch = image_batch({1, 28, 28}, 0, 6);
    const auto context = context_of(true);
    Batch middle = batch;
    middle.inputs = front.executor->forward(0, batch, context).output;
    EXPECT_EQ(back.executor->forward(0, middle, context).sums.values().samples, 6);
    const auto grad = back.executor->backward(0, {}, context, back.recorder);
    EXPECT_FALSE(front.executor->backward(0, grad, context, front.recorder).defined());
    last_gradient[i] = back.arenas.gradients().view(1).clone();
    first_gradient[i] = front.arenas.gradients().view(1).clone();
  }
  expect_close(last_gradient[0], last_gradient[1], "gradient of the last stage");
  expect_close(first_gradient[0], first_gradient[1], "gradient of the first stage");
}

TEST(Onednn, AutomaticChoosesItOrReportsWhyNot) {
  ModelOptions options;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    options.dtype = dtype;
    const auto model = make_model(ModelKind::net, options);
    ModelArenas arenas(model->parameters(), model->buffers());
    std::string why_not;
    const auto executor =
        make_executor(ExecutorKind::automatic, *model, arenas, {}, &why_not);
    if (dtype == at::kFloat) {
      EXPECT_EQ(executor->kind(), ExecutorKind::compiled);
      EXPECT_EQ(why_not, "");
    } else {
      EXPECT_EQ(executor->kind(), ExecutorKind::eager);
      EXPECT_THAT(why_not, AllOf(HasSubstr("compiled"), HasSubstr("float32")));
    }
  }
}

TEST(Onednn, UnsupportedModelsAreErrors) {
  ModelOptions options;
  options.dtype = at::kDouble;
  EXPECT_THAT(
      error_of<ConfigError>([&] {
        Rig rig(make_model(ModelKind::net, options), &make_compiled_executor);
      }),
      AllOf(HasSubstr("float32"), HasSubstr("--executor eager")));
  StageOptions bf16;
  bf16.numerics.product = at::kBFloat16;
  const auto weight = at::arange(3).to(at::kFloat).set_requires_grad(true);
  EXPECT_THAT(
      error_of<ConfigError>([&] {
        Rig rig(
            make_function_model(
                [](const at::Tensor& x) { return x; }, {{"weight", weight}}),
            &make_compiled_executor, bf16);
      }),
      HasSubstr("but the model is a function"));
}

TEST(MakeExecutor, MakesEachKind) {
  const auto model = make_model(ModelKind::net, {});
  ModelArenas arenas(model->parameters(), {});
  EXPECT_NE(make_executor(ExecutorKind::automatic, *model, arenas, {}), nullptr);
  for (const auto kind : {ExecutorKind::compiled, ExecutorKind::eager}) {
    EXPECT_EQ(make_executor(kind, *model, arenas, {})->kind(), kind);
  }
}

}  // namespace tandem::compiled_test
