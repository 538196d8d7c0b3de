#include "tandem/graph/gradient_paths.h"

#include <gtest/gtest.h>

#include "tests/graph/graphs.h"

namespace tandem::gradient_paths_test {

at::Tensor trained(const std::vector<int64_t>& shape) {
  return waves(shape).set_requires_grad(true);
}

TEST(GradientPaths, NameParametersBeforeAnOperatorWithoutDerivative) {
  GraphBuilder builder({3});
  const auto hidden = builder.linear(builder.input(), "a", trained({4, 3}));
  const auto sign = builder.call("aten::sign", "", {Argument::of_value(hidden)}, {4});
  builder.linear(sign, "b", trained({2, 4}));
  const auto found = find_untrained(builder.graph());
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].name, "a.weight");
  ASSERT_NE(found[0].operation, nullptr);
  EXPECT_EQ(found[0].operation->target, "aten::sign");
}

// x + sign(x): a gradient reaches the parameter through the sum.
TEST(GradientPaths, OnePathIsEnough) {
  GraphBuilder builder({3});
  const auto hidden = builder.linear(builder.input(), "a", trained({4, 3}));
  const auto sign = builder.call("aten::sign", "", {Argument::of_value(hidden)}, {4});
  builder.call(
      "aten::add", "Tensor", {Argument::of_value(hidden), Argument::of_value(sign)},
      {4});
  EXPECT_TRUE(find_untrained(builder.graph()).empty());
}

// y = zeros_like(h); y[:, 0] = h[:, 0]; y * 2
TEST(GradientPaths, FollowChangesInPlace) {
  GraphBuilder builder({3});
  const auto hidden = builder.linear(builder.input(), "a", trained({4, 3}));
  const auto zeros =
      builder.call("aten::zeros_like", "", {Argument::of_value(hidden)}, {4});
  const auto column = [&](ValueId id) {
    return builder.call(
        "aten::select", "int",
        {Argument::of_value(id), Argument::of(int64_t{1}), Argument::of(int64_t{0})},
        {});
  };
  const auto target = column(zeros);
  const auto source = column(hidden);
  builder.call(
      "aten::copy_", "", {Argument::of_value(target), Argument::of_value(source)}, {});
  builder.call(
      "aten::mul", "Scalar", {Argument::of_value(zeros), Argument::of(2.0)}, {4});
  EXPECT_TRUE(find_untrained(builder.graph()).empty());
}

}  // namespace tandem::gradient_paths_test
