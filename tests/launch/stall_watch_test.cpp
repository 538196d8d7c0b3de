#include "tandem/launch/status/status_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/launch/status/run_status.h"

namespace tandem::stall_watch_test {

using testing::AllOf;
using testing::HasSubstr;

RankStatus working(int rank, Activity activity = Activity::training) {
  RankStatus status;
  status.rank = rank;
  status.pid = 100 + rank;
  status.activity = activity;
  status.step = 7;
  return status;
}

RankStatus waiting(int rank, double seconds, const char* operation = "barrier #3") {
  auto status = working(rank);
  status.operation = operation;
  status.waiting_seconds = seconds;
  return status;
}

TEST(StallWatch, NamesTheRanksForWhichOthersWait) {
  StallWatch watch(30);
  EXPECT_EQ(watch.look({waiting(0, 29), working(1), waiting(2, 29)}), "");
  EXPECT_EQ(
      watch.look({waiting(0, 31), working(1, Activity::saving), waiting(2, 30)}),
      "[launch] no progress for 31 s: ranks 0 and 2 in barrier #3 wait for rank 1; "
      "rank "
      "1 (pid 101) is saving after step 7");
}

// Rank 1 was frozen while it waited. The other ranks began to wait a little later.
TEST(StallWatch, NamesTheFrozenRankAndNoRankThatWaits) {
  StallWatch watch(30);
  auto frozen = waiting(1, 30.1);
  frozen.suspended = true;
  EXPECT_THAT(
      watch.look({waiting(0, 30), frozen, waiting(2, 29.9)}),
      HasSubstr("ranks 0 and 2 in barrier #3 wait for rank 1;"));
  EXPECT_THAT(
      StallWatch(30).look({waiting(0, 31), working(1), waiting(2, 29)}),
      HasSubstr("ranks 0 and 2 in barrier #3 wait for rank 1;"));
}

TEST(StallWatch, ReportsAStallOnceAndItsEnd) {
  StallWatch watch(30);
  EXPECT_NE(watch.look({waiting(0, 31), working(1)}), "");
  EXPECT_EQ(watch.look({waiting(0, 32), working(1)}), "");
  EXPECT_EQ(watch.look({waiting(0, 1), working(1)}), "[launch] the ranks continue");
  EXPECT_EQ(watch.look({waiting(0, 1), working(1)}), "");
  EXPECT_NE(watch.look({waiting(0, 31), working(1)}), "");
}

TEST(StallWatch, ReportsAgainIfOtherRanksAreMissing) {
  StallWatch watch(30);
  EXPECT_NE(watch.look({waiting(0, 31), working(1), working(2)}), "");
  EXPECT_THAT(
      watch.look({waiting(0, 41), waiting(1, 40), working(2)}),
      HasSubstr("ranks 0 and 1 in barrier #3 wait for rank 2;"));
}

TEST(StallWatch, NamesASuspendedRankThatWaits) {
  StallWatch watch(30);
  auto suspended = waiting(1, 50, "all_reduce #9 (loss)");
  suspended.suspended = true;
  EXPECT_THAT(
      watch.look({waiting(0, 40), suspended, waiting(2, 40)}),
      AllOf(
          HasSubstr("wait for rank 1; rank 1 (pid 101) is suspended"),
          HasSubstr("all_reduce #9 (loss)")));
}

TEST(StallWatch, NamesTheOperationsIfAllRanksWait) {
  StallWatch watch(30);
  EXPECT_THAT(
      watch.look({waiting(0, 31, "broadcast #4"), waiting(1, 31), waiting(2, 31)}),
      AllOf(
          HasSubstr("ranks 1 and 2 in barrier #3"), HasSubstr("rank 0 in broadcast #4"),
          HasSubstr("no rank is missing")));
}

TEST(StallWatch, IsSilentWithoutReportsOfAllRanksOrWithoutALimit) {
  RankStatus unknown;
  EXPECT_EQ(StallWatch(30).look({waiting(0, 31), unknown}), "");
  EXPECT_EQ(StallWatch(0).look({waiting(0, 31), working(1)}), "");
  EXPECT_EQ(StallWatch(30).look({waiting(0, 31)}), "");
}

TEST(RankStatus, SurvivesConversionToJson) {
  auto status = waiting(3, 1.5);
  status.loss = std::nan("");
  status.epoch = 2;
  status.checkpoint_step = 6;
  status.suspended = true;
  const auto back = statuses_from_json(to_json({working(2), status}));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[1].rank, 3);
  EXPECT_EQ(back[1].operation, "barrier #3");
  EXPECT_EQ(back[1].waiting_seconds, 1.5);
  EXPECT_TRUE(std::isnan(back[1].loss));
  EXPECT_EQ(back[1].checkpoint_step, 6);
  EXPECT_TRUE(back[1].suspended);
  EXPECT_EQ(back[1].activity, Activity::training);
  for (const char* text : {"", "{}", "[{}]", "[1]", "[{\"rank\": \"x\"}]"}) {
    EXPECT_TRUE(statuses_from_json(text).empty()) << text;
  }
}

// The functions for ranks use the memory that the environment of their process names,
// so that they run in a process of their own.
void report_as_rank_5() {
  // Another rank of this process, which may report first, has no effect.
  std::thread([] {
    set_thread_rank(6, 7);
    report_step(3, 10);
  }).join();
  set_thread_rank(5, 7);
  report_activity(Activity::saving);
  report_step(2, 9);
  report_values(0.5, 0.1, 1000);
  report_checkpoint(8);
  const ReportedWait outer("all_reduce", 4, "loss");
  const ReportedWait inner("send", 1, "piece");
  std::_Exit(0);
}

TEST(StatusBoard, ShowsWhatARankReported) {
  const StatusBoard board(4, 3);
  for (const auto& status : board.read()) {
    EXPECT_EQ(status.pid, 0);
    EXPECT_EQ(status.step, -1);
  }
  const auto variables = board.variables();
  setenv(variables[0].first.c_str(), variables[0].second.c_str(), 1);
  setenv("TANDEM_STATUS_SLOT", "1", 1);
  setenv("RANK", "5", 1);
  EXPECT_EXIT(report_as_rank_5(), testing::ExitedWithCode(0), "");
  unsetenv(variables[0].first.c_str());
  unsetenv("TANDEM_STATUS_SLOT");
  unsetenv("RANK");
  const auto statuses = board.read();
  EXPECT_EQ(statuses[0].pid, 0);
  EXPECT_EQ(statuses[2].pid, 0);
  const auto& rank = statuses[1];
  EXPECT_EQ(rank.rank, 5);
  EXPECT_EQ(rank.host, host_name());
  EXPECT_NE(rank.pid, 0);
  EXPECT_EQ(rank.activity, Activity::saving);
  EXPECT_EQ(rank.operation, "all_reduce #4 (loss)");
  EXPECT_EQ(rank.epoch, 3);
  EXPECT_EQ(rank.step, 9);
  EXPECT_EQ(rank.loss, 0.5);
  EXPECT_EQ(rank.learning_rate, 0.1);
  EXPECT_EQ(rank.samples_per_second, 1000);
  EXPECT_EQ(rank.checkpoint_step, 8);
}

}  // namespace tandem::stall_watch_test
