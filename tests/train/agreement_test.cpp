#include "tandem/train/agreement/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/comm/group.h"

namespace tandem::agreement_test {

TEST(Agreement, AllRanksGetTheFirstStepWithABadLoss) {
  const auto decisions = on_each_rank("thread", 3, [](Communicator& comm) {
    Agreement agreement(comm, 0);
    for (int64_t step = 1; step <= 6; ++step) {
      // Rank 2 sees it a step before rank 1.
      const bool bad = step >= (comm.rank() == 0 ? 7 : 6 - comm.rank());
      agreement.note_loss(step, {bad ? std::nan("") : 1.0, 0, 1});
    }
    return agreement.decide(6);
  });
  for (const auto& decision : decisions) {
    EXPECT_EQ(decision.bad_rank, 2);
    EXPECT_EQ(decision.bad_step, 4);
    EXPECT_FALSE(decision.save);
    EXPECT_EQ(decision.stopping_rank, -1);
  }
}

TEST(Agreement, AnInfiniteLossIsBadToo) {
  const auto comm = make_single_communicator();
  Agreement agreement(*comm, 0);
  agreement.note_loss(1, {0.5, 0, 1});
  EXPECT_EQ(agreement.decide(1).bad_rank, -1);
  agreement.note_loss(2, {INFINITY, 0, 1});
  EXPECT_EQ(agreement.decide(2).bad_step, 2);
}

TEST(Agreement, RankZerosClockMakesAllRanksSave) {
  const auto saves = on_each_rank("thread", 2, [](Communicator& comm) {
    Agreement never(comm, 0);
    Agreement always(comm, 1e-9);
    Agreement rarely(comm, 1e6);
    return std::vector<bool>{
        never.decide(1).save, always.decide(1).save, rarely.decide(1).save};
  });
  EXPECT_EQ(saves[0], (std::vector<bool>{false, true, false}));
  EXPECT_EQ(saves[1], saves[0]);
}

TEST(Agreement, AResumedRunAgreesAsOftenAsANewRun) {
  const auto comm = make_single_communicator();
  Agreement agreement(*comm, 0);
  agreement.begin(1'000'000);
  EXPECT_TRUE(agreement.is_due(1'000'001));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  agreement.decide(1'000'001);
  // One step took at least 20 ms, so at most 25 steps fit into half a second.
  EXPECT_TRUE(agreement.is_due(1'000'001 + 26));
}

TEST(Agreement, RanksAgreeAtTheSameStepsForAnyClocks) {
  const auto due = on_each_rank("thread", 3, [](Communicator& comm) {
    Agreement agreement(comm, 0);
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= 300; ++step) {
      // Ranks of unequal speed.
      std::this_thread::sleep_for(std::chrono::microseconds(100 * comm.rank()));
      if (agreement.is_due(step)) {
        steps.push_back(step);
        agreement.decide(step);
      }
    }
    return steps;
  });
  EXPECT_EQ(due[0].front(), 1);
  EXPECT_EQ(due[1], due[0]);
  EXPECT_EQ(due[2], due[0]);
}

}  // namespace tandem::agreement_test
