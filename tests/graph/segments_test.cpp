#include "tandem/graph/segments.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"

namespace tandem {

bool operator==(const NodeRange& a, const NodeRange& b) {
  return a.begin == b.begin && a.end == b.end;
}
void PrintTo(const NodeRange& nodes, std::ostream* out) {
  *out << '[' << nodes.begin << ", " << nodes.end << ')';
}

namespace segments_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Argument of(ValueId value) {
  return Argument::of_value(value);
}

// Nodes: relu | a, relu | b, add_ | c. Layer b is added to layer a's output in place.
Graph residual() {
  GraphBuilder builder({4});
  auto x = builder.call("aten::relu", "", {of(builder.input())}, {4});
  x = builder.linear(x, "body.a", waves({4, 4}));
  const auto a = builder.call("aten::relu", "", {of(x)}, {4});
  const auto b = builder.linear(a, "body.b", waves({4, 4}));
  x = builder.call("aten::add_", "Tensor", {of(b), of(a)}, {4}, "join");
  builder.linear(x, "head.c", waves({4, 4}));
  return builder.trainable();
}

TEST(Segments, LayersBeginWithNodesThatHaveParameters) {
  EXPECT_THAT(
      layer_ranges(residual()),
      ElementsAre(NodeRange{0, 3}, NodeRange{3, 5}, NodeRange{5, 6}));
}

TEST(Segments, LayersDoNotDivideChangesInPlace) {
  GraphBuilder builder({4});
  const auto a = builder.linear(builder.input(), "a", waves({4, 4}));
  const auto b = builder.linear(builder.input(), "b", waves({4, 4}));
  builder.call("aten::add_", "Tensor", {of(a), of(b)}, {4});
  EXPECT_THAT(layer_ranges(builder.trainable()), ElementsAre(NodeRange{0, 3}));
}

TEST(Segments, HaveTheRequestedNumberOfLayers) {
  const Graph graph = residual();
  EXPECT_THAT(
      segments_of(graph, 1, false), ElementsAre(NodeRange{0, 3}, NodeRange{3, 5}));
  EXPECT_THAT(
      segments_of(graph, 2, true), ElementsAre(NodeRange{0, 5}, NodeRange{5, 6}));
  expect_error<ConfigError>(
      [&] { (void)segments_of(graph, 3, false); },
      {"recompute is every:3, expected less than the 3 layers", "--recompute"});
}

TEST(Segments, MatchPatternsOfNames) {
  const Graph graph = residual();
  EXPECT_THAT(segments_matching(graph, {"body.*"}), ElementsAre(NodeRange{0, 5}));
  EXPECT_THAT(
      segments_matching(graph, {"body.a", "body.b", "?ead.c"}),
      ElementsAre(NodeRange{0, 3}, NodeRange{3, 5}, NodeRange{5, 6}));
  // A name of another node selects its layer.
  EXPECT_THAT(segments_matching(graph, {"join"}), ElementsAre(NodeRange{3, 5}));
}

// Nodes: a | b, add_ of a buffer, mul by the buffer, relu | c.
TEST(Segments, LeaveOutNodesThatReadChangedBuffers) {
  GraphBuilder builder({4});
  const auto counter = builder.state("counter", at::ones({}), ValueKind::buffer);
  auto x = builder.linear(builder.input(), "a", waves({4, 4}));
  x = builder.linear(x, "b", waves({4, 4}));
  builder.add(
      "aten::add_", "Scalar", {of(counter), Argument::of(1.0)}, fixed_shape({}));
  x = builder.call("aten::mul", "Tensor", {of(x), of(counter)}, {4});
  x = builder.call("aten::relu", "", {of(x)}, {4});
  builder.linear(x, "c", waves({4, 4}));
  EXPECT_THAT(
      recomputable(builder.trainable(), {{0, 5}}),
      ElementsAre(NodeRange{0, 3}, NodeRange{4, 5}));
  EXPECT_THAT(recomputable(builder.graph(), {}), IsEmpty());
}

}  // namespace segments_test
}  // namespace tandem
