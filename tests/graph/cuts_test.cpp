#include "tandem/graph/cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/graph/interpreter.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"

namespace tandem::cuts_test {

using testing::ElementsAre;
using Range = std::pair<size_t, size_t>;

// Two residual blocks between two linear layers:
//
//   0 in, (1 block.0.fc, 2 relu, 3 add), (4 block.1.fc, 5 relu, 6 add), 7 out
Graph residual_blocks() {
  GraphBuilder builder({3});
  ValueId x = builder.linear(builder.input(), "in", waves({4, 3}));
  for (const std::string block : {"block.0", "block.1"}) {
    ValueId y = builder.linear(x, block + ".fc", waves({4, 4}));
    y = builder.call("aten::relu", "", {Argument::of_value(y)}, {4}, block);
    x = builder.call(
        "aten::add", "Tensor", {Argument::of_value(x), Argument::of_value(y)}, {4},
        block);
  }
  builder.linear(x, "out", waves({2, 4}));
  verify(builder.graph());
  return builder.graph();
}

std::vector<Range> split(const Graph& graph, int64_t stages, const Cut& cut = {}) {
  std::vector<Range> ranges;
  for (const auto& range : split_graph(graph, stages, cut)) {
    ranges.emplace_back(range.begin, range.end);
  }
  return ranges;
}

TEST(Cuts, BlocksWithSkipConnectionsStayWhole) {
  const Graph graph = residual_blocks();
  EXPECT_THAT(
      split(graph, 4), ElementsAre(Range(0, 1), Range(1, 4), Range(4, 7), Range(7, 8)));
  expect_error<ConfigError>(
      [&] { split(graph, 5); },
      {"5 stages need as many layers at which a single tensor crosses",
       "has 4 (in block.0.fc block.1.fc out); lower --stages"});
}

TEST(Cuts, NamesAreModulesOrNodes) {
  const Graph graph = residual_blocks();
  const auto at = [&](const std::string& name) {
    return split(graph, 2, {{name}, Balance::time});
  };
  EXPECT_THAT(at("block.1"), ElementsAre(Range(0, 4), Range(4, 8)));
  EXPECT_THAT(at("block.0.fc"), ElementsAre(Range(0, 1), Range(1, 8)));
  EXPECT_THAT(at("linear_7"), ElementsAre(Range(0, 7), Range(7, 8)));
  // Two tensors cross to the ReLU.
  expect_error<ConfigError>(
      [&] { at("relu_2"); },
      {"no stage can begin with 'relu_2'; choose among block.0.fc, block.1.fc, out"});
  expect_error<ConfigError>([&] { at("blok.1.fc"); }, {"did you mean 'block.1.fc'"});
}

TEST(Cuts, StagesInSequenceEqualTheWholeGraph) {
  const Graph graph = residual_blocks();
  const auto x = waves({5, 3});
  const auto expected = Interpreter(graph, {}).run(x, {});
  at::Tensor y = x;
  std::vector<std::string> names;
  for (const auto& range : split_graph(graph, 3)) {
    const Graph part = part_of(graph, range);
    verify(part);
    y = Interpreter(part, {}).run(y, {});
    for (const auto& parameter : parameters_of(part)) {
      names.push_back(parameter.name);
    }
  }
  EXPECT_TRUE(y.equal(expected));
  EXPECT_THAT(
      names,
      ElementsAre("in.weight", "block.0.fc.weight", "block.1.fc.weight", "out.weight"));
}

// One weight in the first and the last layer.
TEST(Cuts, NoStageSharesAParameterWithAnother) {
  GraphBuilder builder({4});
  const auto weight = builder.state("a.weight", waves({4, 4}));
  ValueId x = builder.input();
  for (const std::string name : {"a", "b", "c"}) {
    const auto own = name == "b" ? builder.state("b.weight", waves({4, 4})) : weight;
    x = builder.call(
        "aten::linear", "", {Argument::of_value(x), Argument::of_value(own)}, {4},
        name);
  }
  expect_error<ConfigError>(
      [&] { split(builder.graph(), 2); }, {"the model has 1 (a)"});
}

TEST(Cuts, TheFirstStageHasTheParametersThatNoNodeUses) {
  Graph graph = residual_blocks();
  Value unused;
  unused.kind = ValueKind::parameter;
  unused.name = unused.state_name = "unused";
  unused.dtype = at::kDouble;
  unused.tensor = waves({2});
  add_value(graph, unused);
  const auto ranges = split_graph(graph, 2);
  EXPECT_EQ(parameters_of(part_of(graph, ranges[0])).back().name, "unused");
  EXPECT_NE(parameters_of(part_of(graph, ranges[1])).back().name, "unused");
}

// The heads of attention are rows of one sample: [N * 2, 3].
TEST(Cuts, StagesExchangeOneRowPerSample) {
  GraphBuilder builder({2, 3});
  const auto heads = builder.add(
      "aten::flatten", "using_ints",
      {Argument::of_value(builder.input()), Argument::of(int64_t{0}),
       Argument::of(int64_t{1})},
      {{0, 2}, {3, 0}});
  const auto weight = Argument::of_value(builder.state("a.weight", waves({3, 3})));
  const auto projected = builder.add(
      "aten::linear", "", {Argument::of_value(heads), weight}, {{0, 2}, {3, 0}}, "a");
  const auto other = Argument::of_value(builder.state("b.weight", waves({3, 3})));
  const auto mixed = builder.add(
      "aten::linear", "", {Argument::of_value(projected), other}, {{0, 2}, {3, 0}},
      "b");
  const auto joined = builder.call(
      "aten::reshape", "",
      {Argument::of_value(mixed),
       Argument::of_list({Argument::of_size({0, 1}), Argument::of_size({6, 0})})},
      {6});
  builder.linear(joined, "c", waves({2, 6}));
  verify(builder.graph());
  EXPECT_THAT(split(builder.graph(), 2), ElementsAre(Range(0, 4), Range(4, 5)));
  expect_error<ConfigError>(
      [&] {
        split(builder.graph(), 2, {{"b"}, Balance::time});
      },
      {"no stage can begin with 'b'"});
}

}  // namespace tandem::cuts_test
