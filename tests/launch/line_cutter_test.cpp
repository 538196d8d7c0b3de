#include "tandem/launch/line_cutter.h"

#include <gtest/gtest.h>

namespace tandem::line_cutter_test {

std::string take(LineCutter& cutter, const std::string& text) {
  return cutter.take(text.data(), text.size());
}

TEST(LineCutter, HoldsALineUntilItsEnd) {
  LineCutter cutter("[1] ");
  EXPECT_EQ(take(cutter, "a"), "");
  EXPECT_EQ(take(cutter, "b\ncd\ne"), "[1] ab\n[1] cd\n");
  EXPECT_EQ(cutter.finish(), "[1] e\n");
  EXPECT_EQ(cutter.finish(), "");
}

TEST(LineCutter, PassesProgressOnWithoutANewline) {
  LineCutter cutter("[1] ");
  EXPECT_EQ(take(cutter, "10%\r"), "[1] 10%\r");
  EXPECT_EQ(take(cutter, "20%\r30"), "[1] 20%\r");
  EXPECT_EQ(take(cutter, "%\r"), "[1] 30%\r");
  EXPECT_EQ(take(cutter, "\n"), "\n");
  EXPECT_EQ(take(cutter, "done\n"), "[1] done\n");
}

TEST(LineCutter, TakesReturnAndNewlineForOneEnd) {
  LineCutter cutter("[1] ");
  EXPECT_EQ(take(cutter, "a\r\nb\r"), "[1] a\r\n[1] b\r");
  EXPECT_EQ(take(cutter, "\nc\r\n"), "\n[1] c\r\n");
  EXPECT_EQ(take(cutter, "\n"), "[1] \n");
}

TEST(LineCutter, GivesALineOfAnyLengthInBoundedPieces) {
  LineCutter cutter("[1] ");
  std::string passed;
  const std::string block(10'000, 'x');
  for (int i = 0; i < 500; ++i) {
    passed += take(cutter, block);
  }
  EXPECT_GT(passed.size(), 3'900'000u);
  passed += cutter.finish();
  EXPECT_TRUE(passed == "[1] " + std::string(5'000'000, 'x') + "\n");
}

}  // namespace tandem::line_cutter_test
