#include "tandem/base/wait_notice.h"

#include <gtest/gtest.h>

#include "tandem/base/text.h"

namespace tandem::wait_notice_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(WaitNotice, IsDueAfterFiveSecondsThenOnChangesAndEachMinute) {
  const WaitNotice::Clock::time_point start{};
  WaitNotice notice(start);
  const auto is_due = [&](const std::string& line, milliseconds after) {
    return notice.is_due(line, start + after);
  };
  EXPECT_FALSE(is_due("hosts 1 and 2", milliseconds(0)));
  EXPECT_FALSE(is_due("hosts 1 and 2", milliseconds(4999)));
  EXPECT_TRUE(is_due("hosts 1 and 2", seconds(5)));
  EXPECT_FALSE(is_due("hosts 1 and 2", seconds(6)));
  EXPECT_TRUE(is_due("host 2", seconds(7)));
  EXPECT_FALSE(is_due("host 2", seconds(66)));
  EXPECT_TRUE(is_due("host 2", seconds(67)));
  EXPECT_FALSE(is_due("host 2", seconds(68)));
}

TEST(Text, ListsNumbersWithTheirNoun) {
  EXPECT_EQ(counted(1, "class", "classes"), "1 class");
  EXPECT_EQ(counted(0, "class", "classes"), "0 classes");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
  EXPECT_EQ(with_numbers("host", {3}), "host 3");
  EXPECT_EQ(with_numbers("rank", {1, 2}), "ranks 1 and 2");
  EXPECT_EQ(with_numbers("rank", {0, 1, 2, 5}), "ranks 0 to 2 and 5");
  EXPECT_EQ(with_numbers("rank", {0, 2, 4, 5, 7, 8, 9}), "ranks 0, 2, 4, 5 and 7 to 9");
}

}  // namespace tandem::wait_notice_test
