#include "tandem/train/agreement/stop_exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/comm/group.h"

namespace tandem::gathering_test {

class Gatherings : public testing::TestWithParam<const char*> {};

// A signal stops rank 2 in its third step. The other ranks are at other steps.
TEST_P(Gatherings, ASignalToOneRankStopsAllRanks) {
  const auto steps = on_each_rank(GetParam(), 3, [](Communicator& comm) {
    bool told = false;
    StopExchange gathering(comm, [&] { return told; });
    int64_t step = 0;
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(1 + 3 * comm.rank()));
      ++step;
      told = comm.rank() == 2 && step >= 3;
    } while (!gathering.stops() && step < 100'000);
    // All ranks have stopped, so a collective call is possible.
    comm.barrier("together");
    return step;
  });
  for (const int64_t step : steps) {
    EXPECT_GE(step, 1);
    EXPECT_LT(step, 100'000);
  }
}

TEST_P(Gatherings, NoRankPassesAPointBeforeAllHaveReachedIt) {
  std::atomic<int> arrived{0};
  const auto seen = on_each_rank(GetParam(), 3, [&](Communicator& comm) {
    StopExchange gathering(comm, [] { return false; });
    std::vector<int> counts;
    for (int point = 0; point < 5; ++point) {
      for (int step = 0; step < 20 * comm.rank(); ++step) {
        EXPECT_FALSE(gathering.stops());
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      ++arrived;
      EXPECT_TRUE(gathering.meet());
      counts.push_back(arrived);
      comm.barrier("look");
    }
    return counts;
  });
  for (const auto& counts : seen) {
    EXPECT_EQ(counts, (std::vector<int>{3, 6, 9, 12, 15}));
  }
}

// A fast rank waits at the end of the epoch for a slow rank, which a signal stops.
TEST_P(Gatherings, ARankThatWaitsAtAPointStopsToo) {
  const auto met = on_each_rank(GetParam(), 3, [](Communicator& comm) {
    bool told = false;
    StopExchange gathering(comm, [&] { return told; });
    bool stopped = false;
    if (comm.rank() == 0) {
      stopped = !gathering.meet();
    } else {
      for (int step = 0; !stopped && step < 100'000; ++step) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        told = comm.rank() == 1 && step >= 10;
        stopped = gathering.stops();
      }
    }
    comm.barrier("together");
    return stopped ? 1 : 0;
  });
  EXPECT_EQ(met, (std::vector<int>{1, 1, 1}));
}

INSTANTIATE_TEST_SUITE_P(
    Over, Gatherings, testing::Values("thread", "shm", "gloo"),
    [](const auto& tested) { return std::string(tested.param); });

TEST(StopExchange, WorksForOneRank) {
  const auto comm = make_single_communicator();
  bool told = false;
  StopExchange gathering(*comm, [&] { return told; });
  EXPECT_TRUE(gathering.meet());
  EXPECT_FALSE(gathering.stops());
  EXPECT_TRUE(gathering.meet());
  told = true;
  EXPECT_TRUE(gathering.stops());
}

}  // namespace tandem::gathering_test
