#include "tandem/exec/compiled/graph_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/exec/compiled/kernel_rows.h"
#include "tandem/model/layer_kinds.h"
#include "tests/graph/graphs.h"

namespace tandem::graph_layers_test {

using testing::Contains;
using testing::HasSubstr;

TEST(KernelRows, HaveTheOperatorOfEachKindOfLayer) {
  ASSERT_EQ(kernel_rows().size(), kNumLayerKinds);
  for (const auto& row : kernel_rows()) {
    Layer layer;
    layer.kind = row.kind;
    EXPECT_THAT(row.operators, Contains(row_of(layer).target));
  }
}

// Returns the id of a linear layer's output.
ValueId linear(
    GraphBuilder& builder, ValueId x, ValueId weight, ValueId bias,
    const std::string& module) {
  return builder.call(
      "aten::linear", "",
      {Argument::of_value(x), Argument::of_value(weight), Argument::of_value(bias)},
      {4}, module);
}

TEST(GraphLayers, AreTheNodesOfASequence) {
  GraphBuilder builder({4});
  ValueId x = builder.input();
  for (const std::string name : {"a", "b"}) {
    const auto weight = builder.state(name + ".weight", waves({4, 4}));
    x = linear(builder, x, weight, builder.state(name + ".bias", waves({4})), name);
    x = builder.call("aten::relu", "", {Argument::of_value(x)}, {4});
  }
  const auto found = layers_in(builder.graph());
  EXPECT_EQ(found.obstacle, "");
  ASSERT_EQ(found.layers.size(), 4u);
  EXPECT_EQ(found.layers[2].kind, LayerKind::linear);
  EXPECT_EQ(found.layers[2].name, "b");
  EXPECT_EQ(found.layers[3].kind, LayerKind::relu);
}

TEST(GraphLayers, ASkipConnectionIsAnObstacle) {
  GraphBuilder builder({4});
  const auto weight = builder.state("a.weight", waves({4, 4}));
  const auto bias = builder.state("a.bias", waves({4}));
  const auto x = linear(builder, builder.input(), weight, bias, "a");
  const auto y = builder.call("aten::relu", "", {Argument::of_value(x)}, {4});
  builder.call(
      "aten::add", "Tensor", {Argument::of_value(x), Argument::of_value(y)}, {4});
  EXPECT_THAT(
      layers_in(builder.graph()).obstacle,
      HasSubstr("relu_1: its input has other uses, such as a skip connection"));
}

// The executor's first backward overwrites the gradients of each layer.
TEST(GraphLayers, ParametersThatTwoNodesShareAreAnObstacle) {
  GraphBuilder builder({4});
  const auto weight = builder.state("a.weight", waves({4, 4}));
  const auto bias = builder.state("a.bias", waves({4}));
  const auto x = linear(builder, builder.input(), weight, bias, "a");
  linear(builder, x, weight, bias, "a");
  EXPECT_THAT(
      layers_in(builder.graph()).obstacle,
      HasSubstr("linear_0: another node uses its parameter a.weight"));
}

}  // namespace tandem::graph_layers_test
