#include "tandem/graph/graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"

namespace tandem::graph_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

GraphBuilder two_layers() {
  GraphBuilder builder({3});
  const auto h = builder.linear(builder.input(), "a", waves({4, 3}));
  builder.linear(h, "b", waves({2, 4}));
  return builder;
}

TEST(Graph, DescribesValuesAndNodes) {
  auto builder = two_layers();
  EXPECT_EQ(
      describe(builder.graph()),
      "%x: Double[N, 3]\n"
      "%a.weight: Double[4, 3] = a.weight\n"
      "%b.weight: Double[2, 4] = b.weight\n"
      "%v2: Double[N, 4] = aten::linear(%x, %a.weight, None) # 0 a\n"
      "%v4: Double[N, 2] = aten::linear(%v2, %b.weight, None) # 1 b\n"
      "return %v4\n");
}

TEST(Graph, DescriptionsDifferIfAConstantDiffers) {
  const auto text = [](double value) {
    GraphBuilder builder({3});
    const auto scale =
        builder.state("scale", at::ones({3}, at::kDouble) * value, ValueKind::constant);
    builder.call(
        "aten::mul", "Tensor",
        {Argument::of_value(builder.input()), Argument::of_value(scale)}, {3});
    return describe(builder.graph());
  };
  EXPECT_EQ(text(2), text(2));
  EXPECT_NE(text(2), text(3));
}

TEST(Graph, ListsParametersUnderAllTheirNames) {
  auto builder = two_layers();
  builder.graph().aliases.push_back({"tied.weight", 1});
  const auto parameters = parameters_of(builder.graph());
  ASSERT_EQ(parameters.size(), 3u);
  EXPECT_EQ(parameters[1].name, "b.weight");
  EXPECT_EQ(parameters[2].name, "tied.weight");
  EXPECT_TRUE(parameters[2].tensor.is_same(parameters[0].tensor));
  EXPECT_TRUE(buffers_of(builder.graph()).empty());
}

TEST(Graph, AddNodeFillsDefaultsAndNamesMissingArguments) {
  GraphBuilder builder({3});
  expect_error<ConfigError>(
      [&] {
        builder.call("aten::linear", "", {Argument::of_value(builder.input())}, {3});
      },
      {"has no argument 'weight'"});
  expect_error<ConfigError>(
      [&] { builder.call("aten::no_such_operator", "", {}, {3}); },
      {"aten::no_such_operator", "this LibTorch lacks"});
}

std::string error_in(Graph graph) {
  return error_of<ConfigError>([&] { verify(graph); });
}

TEST(Graph, VerifyNamesTheNodeAndItsLine) {
  auto builder = two_layers();
  EXPECT_EQ(error_in(builder.graph()), "(no error)");

  auto order = builder.graph();
  order.nodes[0].source = "net.py:7: h = self.a(x)";
  std::swap(order.nodes[0].arguments, order.nodes[1].arguments);
  EXPECT_THAT(
      error_in(order), AllOf(
                           StartsWith("[model] linear_0 (net.py:7: h = self.a(x))"),
                           HasSubstr("uses a value before a node computes it")));

  auto twice = builder.graph();
  twice.nodes[1].outputs = twice.nodes[0].outputs;
  EXPECT_THAT(error_in(twice), HasSubstr("that another node computes"));

  auto type = builder.graph();
  type.nodes[1].arguments[1] = Argument::of(3.5);
  EXPECT_THAT(
      error_in(type),
      HasSubstr("argument 'weight' of linear_1 is 3.5, expected Tensor"));

  auto missing = builder.graph();
  missing.nodes.pop_back();
  EXPECT_THAT(error_in(missing), HasSubstr("no node computes the output"));

  auto unknown = builder.graph();
  unknown.nodes[0].target = "aten::linearr";
  EXPECT_THAT(error_in(unknown), HasSubstr("aten::linearr"));

  auto names = builder.graph();
  names.values[2].name = "x";
  EXPECT_THAT(error_in(names), HasSubstr("two values are named 'x'"));
}

TEST(Graph, VerifyRejectsChangesOfTrainedParametersAndConstants) {
  GraphBuilder builder({3});
  const auto scale =
      builder.state("scale", at::ones({3}, at::kDouble).set_requires_grad(true));
  builder.call(
      "aten::add_", "Tensor",
      {Argument::of_value(scale), Argument::of_value(builder.input())}, {3});
  EXPECT_THAT(error_in(builder.graph()), HasSubstr("changes the parameter scale"));

  GraphBuilder other({3});
  const auto moving =
      other.state("moving", at::ones({3}, at::kDouble), ValueKind::constant);
  other.call(
      "aten::add_", "Tensor",
      {Argument::of_value(moving), Argument::of_value(other.input())}, {3});
  EXPECT_THAT(error_in(other.graph()), HasSubstr("persistent=True"));
}

}  // namespace tandem::graph_test
