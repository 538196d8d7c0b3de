#include "tandem/graph/pt2_sizes.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::pt2_sizes_test {

constexpr const char* kSamples = "Symbol('s77', positive=True, integer=True)";

TEST(Pt2Sizes, ParsesExpressionsOfSympy) {
  const std::string n = kSamples;
  const auto parse = [](const std::string& text) { return *parse_size(text, "s77"); };
  EXPECT_EQ(parse(n), (Size{0, 1}));
  EXPECT_EQ(parse("Integer(6)"), (Size{6, 0}));
  EXPECT_EQ(parse("Mul(Integer(6), " + n + ")"), (Size{0, 6}));
  EXPECT_EQ(parse("Add(Mul(Integer(6), " + n + "), Integer(-1))"), (Size{-1, 6}));
  EXPECT_EQ(
      parse("FloorDiv(Add(Mul(Integer(6), " + n + "), Integer(-1)), Integer(3))"),
      (Size{-1, 2}));
  EXPECT_EQ(parse("Mod(Mul(Integer(6), " + n + "), Integer(3))"), (Size{0, 0}));
}

TEST(Pt2Sizes, ParsesPlainExpressions) {
  const auto parse = [](const std::string& text) { return *parse_size(text, "s77"); };
  EXPECT_EQ(parse("s77"), (Size{0, 1}));
  EXPECT_EQ(parse("8*s77"), (Size{0, 8}));
  EXPECT_EQ(parse("s77*8"), (Size{0, 8}));
  EXPECT_EQ(parse("s77 + 1"), (Size{1, 1}));
  EXPECT_EQ(parse("3 - 2*(s77 - 1)"), (Size{5, -2}));
  EXPECT_EQ(parse("((8*s77)//4)"), (Size{0, 2}));
  EXPECT_EQ(parse("-s77 + 2*s77"), (Size{0, 1}));
}

TEST(Pt2Sizes, RejectsOtherExpressions) {
  for (const char* text :
       {"", "s0", "s77*s77", "s77**2", "s77//2", "s77 +", "(s77", "s77)", "s77 s77",
        "Symbol('s0')", "Symbol(s77)", "Integer()", "Max(1, s77)", "s77//0", "s77//s77",
        "1.5*s77", "99999999999999", "4000000000000", "1000000000000*1000000000000"}) {
    EXPECT_FALSE(parse_size(text, "s77").has_value()) << text;
  }
  EXPECT_FALSE(parse_size(std::string(1'000'000, '(') + "s77", "s77").has_value());
}

TEST(Pt2Sizes, FindsALoneSymbol) {
  EXPECT_EQ(symbol_of(kSamples), "s77");
  EXPECT_EQ(symbol_of("s0"), "s0");
  for (const char* text : {"", "7", "2*s0", "Integer(6)", "Symbol('s0') + 1"}) {
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
