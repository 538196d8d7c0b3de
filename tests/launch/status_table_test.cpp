#include "tandem/launch/status/status_client.h"

#include <gtest/gtest.h>

namespace tandem::status_table_test {

RankStatus rank_of(int rank, const std::string& host, int64_t step) {
  RankStatus status;
  status.rank = rank;
  status.host = host;
  status.pid = 7;
  status.activity = Activity::training;
  status.epoch = 2;
  status.step = step;
  return status;
}

TEST(StatusTable, HasALineForEachRank) {
  RunStatus status;
  status.restarts = 1;
  status.world_size = 3;
  status.ranks = {rank_of(0, "node-a", 120), rank_of(1, "b", 119), RankStatus()};
  status.ranks[0].loss = 0.123456;
  status.ranks[0].samples_per_second = 5310.2;
  status.ranks[0].checkpoint_step = 100;
  status.ranks[0].checkpoint_seconds = 300;
  status.ranks[1].suspended = true;
  status.ranks[1].operation = "all_reduce #12 (loss)";
  status.ranks[1].waiting_seconds = 42;
  status.ranks[2].rank = 2;
  EXPECT_EQ(
      status_table(status),
      "3 ranks, epoch 2, step 120, checkpoint of step 100, 1 restart\n"
      "rank  host    step  loss    samples/s  checkpoint  activity\n"
      "0     node-a  120   0.1235  5310       5 min ago   training\n"
      "1     b       119   -       -          -           suspended, training, waits "
      "42 s in all_reduce #12 (loss)\n"
      "2     -       -     -       -          -           starting\n");
}

TEST(StatusTable, IsShortBeforeTheStart) {
  RunStatus status;
  status.world_size = 1;
  EXPECT_EQ(
      status_table(status),
      "1 rank\nrank  host  step  loss  samples/s  checkpoint  activity\n");
}

}  // namespace tandem::status_table_test
