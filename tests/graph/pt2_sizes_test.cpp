#include "tandem/graph/pt2_sizes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::pt2_sizes_test {

constexpr const char* kSamples = "Symbol('s77', positive=True, integer=True)";

TEST(Pt2Sizes, ParsesExpressionsOfSympy) {
  const std::string n = kSamples;
  const auto parse = [](const std::string& text) { return *parse_size(text, "s77"); };
  EXPECT_EQ(parse(n), (Size{0, 1}));
  EXPECT_EQ(parse("Integer(6)"), (Size{6, 0}));
  EXPECT_EQ(parse("Mul(Integer(6), " + n + ")"), (Size{0, 6}));
  EXPECT_EQ(parse("Mul(Integer(-1), " + n + ")"), (Size{0, -1}));
  EXPECT_EQ(parse("Add(" + n + ", Integer(5), " + n + ")"), (Size{5, 2}));
  EXPECT_EQ(parse("Add(Mul(Integer(6), " + n + "), Integer(-1))"), (Size{-1, 6}));
  EXPECT_EQ(
      parse("FloorDiv(Add(Mul(Integer(6), " + n + "), Integer(-1)), Integer(3))"),
      (Size{-1, 2}));
  EXPECT_EQ(parse("Mod(Mul(Integer(6), " + n + "), Integer(3))"), (Size{0, 0}));
  EXPECT_EQ(parse("PythonMod(Integer(-1), Integer(3))"), (Size{2, 0}));
}

TEST(Pt2Sizes, RejectsOtherExpressions) {
  const std::string n = kSamples;
  const std::vector<std::string> texts = {
      "",
      "s77",
      "8*s77",
      "Mul(" + n + ", " + n + ")",
      "Pow(" + n + ", Integer(2))",
      "FloorDiv(" + n + ", Integer(2))",
      "FloorDiv(" + n + ", Integer(0))",
      "FloorDiv(" + n + ", " + n + ")",
      "Max(Integer(1), " + n + ")",
      n + " ",
      n + ")",
      "Mul(" + n,
      "Mul()",
      "Mul(" + n + ", )",
      "Symbol('s0')",
      "Symbol(s77)",
      "Integer()",
      "Integer(1.5)",
      "Integer(99999999999999)",
      "Integer(99999999999999999999)",
      "Mul(Integer(1000000000000), Integer(1000000000000))"};
  for (const auto& text : texts) {
    EXPECT_FALSE(parse_size(text, "s77").has_value()) << text;
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) {
    deep += "Add(";
  }
  EXPECT_FALSE(parse_size(deep, "s77").has_value());
}

TEST(Pt2Sizes, FindsALoneSymbol) {
  EXPECT_EQ(symbol_of(kSamples), "s77");
  for (const char* text : {"", "s0", "Integer(6)", "Symbol('s0') + 1"}) {
    EXPECT_FALSE(symbol_of(text).has_value()) << text;
  }
}

TEST(Pt2Sizes, ShowsExpressionsWithoutPropertiesOfSymbols) {
  EXPECT_EQ(
      readable_size(std::string("Mul(") + kSamples + ", " + kSamples + ")"),
      "Mul(s77, s77)");
  EXPECT_EQ(readable_size(std::string(1000, 'a')).size(), 80u);
}

}  // namespace tandem::pt2_sizes_test
