#include "tandem/model/stages.h"

#include <ATen/ops/linspace.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"

namespace tandem::stages_test {

using testing::ElementsAre;
using testing::HasSubstr;

using Range = std::pair<size_t, size_t>;

std::vector<Range> split(
    const std::vector<Layer>& layers, int64_t stages,
    const std::vector<int64_t>& input = {1, 8, 8}, const Cut& cut = {}) {
  std::vector<Range> ranges;
  ModelOptions options;
  options.input = input;
  const auto model = make_layered_model(layers, options);
  for (const auto& range : split_graph(*model->graph(), stages, cut)) {
    ranges.emplace_back(range.begin, range.end);
  }
  return ranges;
}

// Returns linear layers with costs in these proportions, each followed by a ReLU.
std::vector<Layer> layers_that_cost(const std::vector<int64_t>& costs) {
  std::vector<Layer> layers = {flatten()};
  for (const int64_t cost : costs) {
    layers.push_back(linear("fc" + std::to_string(layers.size() / 2), 1, cost));
    layers.push_back(relu());
  }
  return layers;
}

TEST(SplitGraph, MinimizesTheCostOfTheMostExpensiveStage) {
  const auto layers = layers_that_cost({5, 1, 1, 4});
  EXPECT_THAT(split(layers, 1), ElementsAre(Range(0, 9)));
  EXPECT_THAT(split(layers, 2), ElementsAre(Range(0, 5), Range(5, 9)));
  EXPECT_THAT(split(layers, 3), ElementsAre(Range(0, 3), Range(3, 7), Range(7, 9)));
  EXPECT_THAT(
      split(layers, 4),
      ElementsAre(Range(0, 3), Range(3, 5), Range(5, 7), Range(7, 9)));
  EXPECT_THAT(
      split(layers_that_cost({1, 1, 1, 9}), 2), ElementsAre(Range(0, 7), Range(7, 9)));
  EXPECT_THAT(
      split(layers_that_cost({9, 1, 1, 1}), 2), ElementsAre(Range(0, 3), Range(3, 9)));
}

TEST(SplitGraph, ConvolutionCostsItsWindowAtEachOutputPixel) {
  // 8x8 -> 6x6: 36 * 9 * 2 = 648 multiplications, 72 + 72 + 18 values written: 2268.
  // Pooled to 3x3, padded: 9 * 9 * 2 * 4 = 648, 36 values: 1008. Linear: 46 per
  // feature. So the second convolution is in the last stage up to 49 features (3262 <
  // 2268 + 1008).
  const auto layers = [](int64_t features) {
    return std::vector<Layer>{
        conv2d("a", 1, 2, 3),    relu(),    max_pool2d(2),
        conv2d("b", 2, 4, 3, 1), flatten(), linear("c", 36, features)};
  };
  EXPECT_THAT(split(layers(49), 2), ElementsAre(Range(0, 3), Range(3, 6)));
  EXPECT_THAT(split(layers(50), 2), ElementsAre(Range(0, 5), Range(5, 6)));
  EXPECT_THAT(split(layers(1), 3), ElementsAre(Range(0, 3), Range(3, 5), Range(5, 6)));
}

TEST(SplitGraph, StagesOfTheTutorialsModelsBeginWithConvolutionsAndLinearLayers) {
  for (const auto& entry : Choices<ModelKind>::rows) {
    if (!is_built_in(entry.value) || is_alias(entry)) {
      continue;
    }
    ModelOptions options;
    options.input = {1, 28 + 2 * entry.pad, 28 + 2 * entry.pad};
    const auto model = make_model(entry.value, options);
    const auto& nodes = model->graph()->nodes;
    for (const int64_t stages : {1, 2, 3, 4}) {
      const auto message = error_of<ConfigError>([&] {
        const auto ranges = split_graph(*model->graph(), stages);
        ASSERT_EQ(ranges.size(), static_cast<size_t>(stages));
        size_t at = 0;
        for (const auto& range : ranges) {
          EXPECT_EQ(range.begin, at);
          const auto& target = nodes[range.begin].target;
          EXPECT_TRUE(at == 0 || target == "aten::conv2d" || target == "aten::linear");
          at = range.end;
        }
        EXPECT_EQ(at, nodes.size());
      });
      const std::string name = entry.name;
      const int64_t most = name == "simplenet" ? 1 : name == "convnet_bn" ? 3 : 4;
      EXPECT_EQ(message == "(no error)", stages <= most) << name << " " << stages;
    }
  }
}

TEST(SplitGraph, StagesBeginAtTheLayersOfCut) {
  const auto layers = layers_that_cost({5, 1, 1, 4});
  const auto at = [&](const std::vector<std::string>& names, int64_t stages) {
    return split(layers, stages, {1, 8, 8}, {names, Balance::time});
  };
  EXPECT_THAT(at({"fc3"}, 2), ElementsAre(Range(0, 7), Range(7, 9)));
  EXPECT_THAT(
      at({"fc3", "fc1"}, 3), ElementsAre(Range(0, 3), Range(3, 7), Range(7, 9)));
  const auto error = [&](const std::vector<std::string>& names, int64_t stages) {
    return error_of<ConfigError>([&] { at(names, stages); });
  };
  expect_parts(error({"fc4"}, 2), {"--cut fc4", "choose among fc1, fc2, fc3"});
  EXPECT_THAT(error({"fc0"}, 2), HasSubstr("leaves a stage without layers"));
  EXPECT_THAT(error({"fc1", "fc1"}, 3), HasSubstr("leaves a stage without layers"));
  EXPECT_THAT(
      error({"fc1"}, 3), HasSubstr("--cut fc1 makes 2 stages, but there are 3"));
}

// The convolutions take most of the time; the last layer has most parameters.
TEST(SplitGraph, BalancesTimeOrParameters) {
  const std::vector<Layer> layers = {
      conv2d("conv1", 1, 32, 3), conv2d("conv2", 32, 64, 3), flatten(),
      linear("fc1", 64, 64),     linear("fc2", 64, 64),      linear("fc3", 64, 900)};
  const auto cut = [&](Balance balance) {
    return split(layers, 2, {1, 8, 8}, {{}, balance});
  };
  // 27,136 parameters and 58,500.
  EXPECT_THAT(cut(Balance::memory), ElementsAre(Range(0, 5), Range(5, 6)));
  EXPECT_THAT(cut(Balance::time), ElementsAre(Range(0, 3), Range(3, 6)));
}

std::unique_ptr<Model> model_of_three() {
  ModelOptions options;
  options.input = {1, 8, 8};
  options.seed = 4;
  options.dtype = at::kDouble;
  return make_layered_model(
      {conv2d("conv", 1, 3, 3), batch_norm2d("norm", 3), relu(), dropout(0.4),
       flatten(), linear("fc1", 108, 7), relu(), dropout(0.5), linear("fc2", 7, 3),
       log_softmax()},
      options);
}

TEST(KeepStage, StagesInSequenceEqualTheWholeModel) {
  const auto whole = model_of_three();
  ForwardContext context;
  context.samples = {7, 1, 5, 2};
  const auto images = at::linspace(-1, 1, 4 * 64, at::kDouble).view({4, 1, 8, 8});
  at::Tensor x = images;
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  for (const int64_t stage : {0, 1, 2}) {
    const auto part = model_of_three();
    EXPECT_EQ(
        keep_stage(*part, 3, stage),
        "conv, 36 parameters (288 bytes) | fc1, 763 parameters (6104 bytes) | fc2, 24 "
        "parameters (192 bytes)");
    x = part->forward(x.detach(), context);
    for (const auto& entry : part->parameters()) {
      parameters.push_back(entry);
    }
    for (const auto& entry : part->buffers()) {
      buffers.push_back(entry);
    }
  }
  EXPECT_TRUE(x.equal(whole->forward(images, context)));
  expect_equal_tensors(parameters, whole->parameters());
  expect_equal_tensors(buffers, whole->buffers());
}

TEST(KeepStage, ModelWithoutGraphIsAnError) {
  auto model = make_function_model([](const at::Tensor& x) { return x; }, {});
  expect_error<ConfigError>(
      [&] { keep_stage(*model, 2, 0); }, {"layers", "--strategy data_parallel"});
  EXPECT_EQ(keep_stage(*model, 1, 0), "the whole model");
}

}  // namespace tandem::stages_test
