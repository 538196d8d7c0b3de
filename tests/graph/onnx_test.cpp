#include "tandem/graph/onnx.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/graph/interpreter.h"
#include "tandem/graph/normalized_input.h"
#include "tests/core/expect.h"
#include "tests/graph/fixtures.h"
#include "tests/graph/graphs.h"

namespace tandem::onnx_test {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Returns each node as "name: Type(inputs) -> outputs".
std::vector<std::string> lines_of(const OnnxModel& model) {
  std::vector<std::string> lines;
  for (const auto& node : model.nodes) {
    lines.push_back(
        node.name + ": " + node.type + "(" + join(node.inputs) + ") -> " +
        join(node.outputs));
  }
  return lines;
}

std::vector<std::string> initializers_of(const OnnxModel& model) {
  std::vector<std::string> names;
  for (const auto& tensor : model.initializers) {
    names.push_back(tensor.name);
  }
  return names;
}

TEST(Onnx, KeepsTheNamesOfNodesAndParameters) {
  const auto model = onnx_model(read_fixture("net-2.15.0.pt2"));
  // Dropout is absent.
  EXPECT_THAT(
      lines_of(model), ElementsAre(
                           "conv2d: Conv(x, conv1.weight, conv1.bias) -> conv2d",
                           "relu: Relu(conv2d) -> relu",
                           "conv2d_1: Conv(relu, conv2.weight, conv2.bias) -> conv2d_1",
                           "relu_1: Relu(conv2d_1) -> relu_1",
                           "max_pool2d: MaxPool(relu_1) -> max_pool2d",
                           "flatten: Reshape(max_pool2d, flatten/constant) -> flatten",
                           "linear: Gemm(flatten, fc1.weight, fc1.bias) -> linear",
                           "relu_2: Relu(linear) -> relu_2",
                           "linear_1: Gemm(relu_2, fc2.weight, fc2.bias) -> linear_1",
                           "log_softmax: LogSoftmax(linear_1) -> log_softmax"));
  EXPECT_THAT(
      initializers_of(model),
      ElementsAre(
          "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
          "flatten/constant", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
}

TEST(Onnx, NumberOfSamplesIsUnknown) {
  const auto model = onnx_model(read_fixture("net-2.15.0.pt2"));
  using Shape = std::vector<std::variant<int64_t, std::string>>;
  EXPECT_EQ(model.input.name, "x");
  EXPECT_EQ(model.input.shape, (Shape{"N", int64_t{1}, int64_t{28}, int64_t{28}}));
  EXPECT_EQ(model.output.name, "log_softmax");
  EXPECT_EQ(model.output.shape, (Shape{"N", int64_t{10}}));
}

TEST(Onnx, LeavesOutTheCounterOfBatchNorm) {
  const auto model = onnx_model(read_fixture("residual-2.15.0.pt2"));
  EXPECT_THAT(
      initializers_of(model), AllOf(
                                  Contains("first.0.running_mean"),
                                  Not(Contains("first.0.num_batches_tracked"))));
}

// x.relu_() changes h, so y = h - r is 0.
TEST(Onnx, OperatorsInPlaceChangeTheirInput) {
  GraphBuilder builder({3});
  const auto h = builder.linear(builder.input(), "a", waves({3, 3}));
  const auto r = builder.call("aten::relu_", "", {Argument::of_value(h)}, {3});
  builder.call(
      "aten::sub", "Tensor", {Argument::of_value(h), Argument::of_value(r)}, {3});
  const auto lines = lines_of(onnx_model(builder.graph()));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[2], HasSubstr("Sub(v3, v3)"));
}

TEST(Onnx, RejectsOtherViewsOfATensorChangedInPlace) {
  GraphBuilder builder({6});
  const auto h = builder.linear(builder.input(), "a", waves({6, 6}));
  const auto view = builder.call(
      "aten::unsqueeze", "", {Argument::of_value(h), Argument::of(int64_t{1})}, {1, 6});
  builder.call("aten::relu_", "", {Argument::of_value(h)}, {6});
  builder.call("aten::tanh", "", {Argument::of_value(view)}, {1, 6});
  expect_error<ConfigError>(
      [&] { std::ignore = onnx_model(builder.graph()); },
      {"aten::tanh after relu__2 changes the memory of its input in place in tanh_3"});
}

TEST(Onnx, InputCanBeTheOutput) {
  GraphBuilder builder({3});
  builder.call(
      "aten::dropout", "",
      {Argument::of_value(builder.input()), Argument::of(0.5), Argument::of(true)},
      {3});
  const auto model = onnx_model(builder.graph());
  EXPECT_THAT(
      lines_of(model), ElementsAre("output/Identity: Identity(x) -> output/Identity"));
  EXPECT_EQ(model.output.name, "output/Identity");
}

// A parameter and a node have the same name.
TEST(Onnx, NamesAreUnique) {
  GraphBuilder builder({3});
  const auto bias = builder.state("add", waves({3}));
  const auto sum = builder.call(
      "aten::add", "Tensor",
      {Argument::of_value(builder.input()), Argument::of_value(bias)}, {3});
  builder.graph().values[static_cast<size_t>(bias)].name = "p_add";
  builder.graph().values[static_cast<size_t>(sum)].name = "add";
  EXPECT_THAT(
      lines_of(onnx_model(builder.graph())),
      ElementsAre("add_0: Add(x, add) -> add_1"));
}

TEST(Onnx, ErrorNamesAllOperatorsWithoutConversion) {
  GraphBuilder builder({4, 6, 9});
  auto x = builder.input();
  for (int i = 0; i < 2; ++i) {
    x = builder.call("aten::lgamma", "", {Argument::of_value(x)}, {4, 6, 9});
  }
  builder.graph().nodes[0].source = "net.py:7: x = x.lgamma()";
  x = builder.call(
      "aten::elu", "", {Argument::of_value(x), Argument::of(1.0), Argument::of(2.0)},
      {4, 6, 9});
  EXPECT_EQ(
      error_of<ConfigError>([&] { std::ignore = onnx_model(builder.graph()); }),
      "[export] tandem has no conversion to ONNX for aten::elu with scale in elu_2, "
      "for "
      "aten::lgamma in lgamma_0 (net.py:7: x = x.lgamma()) and 1 more; replace the "
      "operators in the network, or use another format");
}

// ONNX counts the indices of max pooling differently.
TEST(Onnx, IndicesOfMaxPoolingHaveNoCounterpart) {
  GraphBuilder builder({4, 6, 6});
  const auto values = builder.output("values", batch_shape({4, 3, 3}));
  const auto indices = builder.output("indices", batch_shape({4, 3, 3}));
  add_node(
      builder.graph(), "aten::adaptive_max_pool2d", "",
      {Argument::of_value(builder.input()), Argument::of(std::vector<int64_t>{3, 3})},
      {values, indices});
  builder.graph().output = values;
  EXPECT_EQ(onnx_model(builder.graph()).nodes.size(), 1u);
  builder.graph().output = indices;
  expect_error<ConfigError>(
      [&] { std::ignore = onnx_model(builder.graph()); },
      {"aten::adaptive_max_pool2d with its other outputs in"});
}

// An operator that nothing uses is no obstacle.
TEST(Onnx, LeavesOutUnusedOperators) {
  GraphBuilder builder({3});
  builder.call("aten::lgamma", "", {Argument::of_value(builder.input())}, {3});
  builder.call("aten::relu", "", {Argument::of_value(builder.input())}, {3});
  EXPECT_THAT(lines_of(onnx_model(builder.graph())), ElementsAre(HasSubstr("Relu(x)")));
}

TEST(Onnx, HasTheValuesOfOperatorsOnConstants) {
  GraphBuilder builder({3, 3});
  const auto positions = builder.add(
      "aten::arange", "",
      {Argument::of(int64_t{9}), Argument::of(static_cast<int64_t>(at::kDouble))},
      fixed_shape({9}));
  const auto square = builder.add(
      "aten::view", "",
      {Argument::of_value(positions), Argument::of(std::vector<int64_t>{3, 3})},
      fixed_shape({3, 3}));
  const auto mask =
      builder.add("aten::tril", "", {Argument::of_value(square)}, fixed_shape({3, 3}));
  builder.call(
      "aten::mul", "Tensor",
      {Argument::of_value(builder.input()), Argument::of_value(mask)}, {3, 3});
  const auto model = onnx_model(builder.graph());
  EXPECT_THAT(lines_of(model), ElementsAre(HasSubstr("Mul(x, v3)")));
  ASSERT_EQ(model.initializers.size(), 1);
  EXPECT_TRUE(model.initializers[0].tensor.equal(
      at::arange(9, at::kDouble).view({3, 3}).tril()));
  EXPECT_EQ(builder.graph().nodes.size(), 4);
}

// The new input is a batch of pixels without padding.
TEST(Onnx, NormalizesTheInput) {
  GraphBuilder builder({2, 4, 4});
  builder.call("aten::relu", "", {Argument::of_value(builder.input())}, {2, 4, 4});
  InputNormalization normalization;
  normalization.unit = 255;
  normalization.mean = {0.5, 0.25};
  normalization.std = {2, 4};
  normalization.pad = 1;
  const auto graph = with_normalized_input(builder.graph(), normalization);
  verify(graph);
  EXPECT_EQ(graph.value(graph.input).shape, batch_shape({2, 2, 2}));
  const auto x = waves({3, 2, 2, 2}).mul(255);
  const auto mean = at::tensor(normalization.mean, at::kDouble).view({2, 1, 1});
  const auto std = at::tensor(normalization.std, at::kDouble).view({2, 1, 1});
  const auto expected =
      at::constant_pad_nd(x, {1, 1, 1, 1}).div(255).sub(mean).div(std).relu();
  EXPECT_TRUE(Interpreter(graph, {}).run(x, in_mode(false)).allclose(expected));
  EXPECT_THAT(
      lines_of(onnx_model(graph)),
      ElementsAre(
          "padded_input: Pad(x, padded_input/constant, padded_input/constant_1) -> "
          "padded_input",
          "scaled_input: Div(padded_input, scaled_input/constant) -> scaled_input",
          "centered_input: Sub(scaled_input, input_mean) -> centered_input",
          "normalized_input: Div(centered_input, input_std) -> normalized_input",
          "relu_0: Relu(normalized_input) -> v1"));
}

TEST(Onnx, RestoresTheUnitsOfTheOutput) {
  GraphBuilder builder({3});
  builder.call("aten::relu", "", {Argument::of_value(builder.input())}, {3});
  const auto graph = with_restored_output(builder.graph(), {1, 2, 3}, {10, 20, 30});
  verify(graph);
  const auto x = waves({4, 3});
  const auto expected = x.relu()
                            .mul(at::tensor({10.0, 20.0, 30.0}, at::kDouble))
                            .add(at::tensor({1.0, 2.0, 3.0}, at::kDouble));
  EXPECT_TRUE(Interpreter(graph, {}).run(x, in_mode(false)).allclose(expected));
  EXPECT_EQ(lines_of(onnx_model(graph)).size(), 3u);
}

TEST(Onnx, TooManyWeightsAreRejected) {
  OnnxModel model;
  // Views of one element, so that the test needs no memory.
  const auto large = at::zeros({1}).expand({1 << 29});
  model.initializers = {{"a", large}};
  expect_error<ConfigError>(
      [&] { std::ignore = onnx_bytes(model); },
      {"[export] the network has 2147483648 bytes, expected at most"});
}

}  // namespace tandem::onnx_test
