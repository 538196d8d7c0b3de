// Ranks over shared memory, as threads with one mapping of it (one_mapping.cpp) and
// random delays between any two of their steps (delays.h). If a rank accesses data
// without waiting for the others, the thread sanitizer reports a race, and a release
// build computes a wrong result. --gtest_random_seed=N changes the seed.

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/shm/region.h"
#include "tests/comm/joining_ranks.h"
#include "tests/comm/shm/delays.h"
#include "tests/comm/shm/player.h"
#include "tests/core/expect.h"

namespace tandem::protocol_test {

class ShmProtocol : public testing::TestWithParam<int> {
 protected:
  // Different for each rank, number of ranks and N.
  uint64_t seed_of(int rank) const {
    const auto given = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
    return (given * 64 + static_cast<uint64_t>(GetParam())) * 64 +
           static_cast<uint64_t>(rank);
  }

  // Runs `body` on GetParam() ranks with delays.
  void run(const std::function<void(Communicator&)>& body) const {
    std::printf("--gtest_random_seed=%d\n", GTEST_FLAG_GET(random_seed));
    const auto region = ShmRegion::create(2);
    ASSERT_EQ(&ShmRegion::attach(region->address(), 2)->block(1), &region->block(1))
        << "linked without one_mapping.cpp";
    run_shm_ranks(
        GetParam(),
        [&](Communicator& comm) {
          const RandomDelays delays(seed_of(comm.rank()));
          body(comm);
          TANDEM_CHECK(delays.num_places() > 0, "compiled without delays");
        },
        std::chrono::milliseconds(100'000));
  }
};

TEST_P(ShmProtocol, ResultsAreExactForAnyLateRank) {
  std::vector<int64_t> board(static_cast<size_t>(GetParam()));
  run([&](Communicator& comm) { Player(comm, seed_of(0), board).play(240); });
}

TEST_P(ShmProtocol, PlacesOfSmallOperationsAreReused) {
  run([](Communicator& comm) {
    constexpr int64_t kOperations = 20 * ShmRankBlock::kAnnouncements;
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int64_t number = 0; number < kOperations; ++number) {
      tensors.push_back(at::empty({500}));
      fill(tensors.back(), [&](int64_t i) { return value(number, comm.rank(), i); });
      works.push_back(comm.all_reduce(tensors.back()));
    }
    for (int64_t number = kOperations; number-- > 0;) {
      works[static_cast<size_t>(number)]->wait();
      expect("all_reduce", tensors[static_cast<size_t>(number)], [&](int64_t i) {
        return sum_of_values(number, comm.size(), i);
      });
    }
  });
}

TEST_P(ShmProtocol, MessagesLargerThanTheirRingArriveInAnyOrder) {
  run([&](Communicator& comm) {
    const int next = (comm.rank() + 1) % comm.size();
    const int last = (comm.rank() + comm.size() - 1) % comm.size();
    std::mt19937_64 own(seed_of(comm.rank()));
    for (int first = 0; first < 20; first += 4) {
      std::vector<at::Tensor> sent;
      std::vector<at::Tensor> got;
      std::vector<WorkPtr> works;
      for (int tag = 0; tag < 4; ++tag) {
        sent.push_back(at::empty({tag % 2 == 0 ? 90'001 + tag : 10 + tag}));
        got.push_back(at::empty_like(sent.back()));
        fill(
            sent.back(), [&](int64_t i) { return value(first + tag, comm.rank(), i); });
        works.push_back(comm.send(sent.back(), next, tag));
      }
      std::vector<int> tags = {0, 1, 2, 3};
      std::shuffle(tags.begin(), tags.end(), own);
      for (const int tag : tags) {
        works.push_back(comm.recv(got[static_cast<size_t>(tag)], last, tag));
      }
      std::shuffle(works.begin(), works.end(), own);
      for (const auto& work : works) {
        work->wait();
      }
      for (const int tag : tags) {
        expect("recv", got[static_cast<size_t>(tag)], [&](int64_t i) {
          return value(first + tag, last, i);
        });
      }
    }
  });
}

TEST_P(ShmProtocol, BuffersAreAllocatedAndFreedInSeveralThreads) {
  run([&](Communicator& comm) {
    const auto other = std::async(std::launch::async, [&] {
      const RandomDelays delays(seed_of(GetParam() + comm.rank()));
      for (int i = 0; i < 60; ++i) {
        fill(comm.make_buffer(1'000 + i, at::kFloat), [](int64_t) { return -1.0F; });
      }
    });
    for (int number = 0; number < 30; ++number) {
      const auto buffer = comm.make_buffer(9'000 + number, at::kFloat);
      fill(buffer, [&](int64_t i) { return value(number, comm.rank(), i); });
      comm.all_reduce(buffer)->wait();
      expect("all_reduce", buffer, [&](int64_t i) {
        return sum_of_values(number, comm.size(), i);
      });
    }
  });
}

TEST_P(ShmProtocol, RanksThatCallDifferentOperationsAllGetAnError) {
  std::vector<std::string> messages(static_cast<size_t>(GetParam()));
  run([&](Communicator& comm) {
    comm.barrier();
    const auto tensor = at::empty({comm.rank() == 0 ? 40'000 : 50'000}).zero_();
    messages[static_cast<size_t>(comm.rank())] =
        error_of<CommError>([&] { comm.all_reduce(tensor)->wait(); });
  });
  EXPECT_THAT(messages, testing::Each(testing::HasSubstr("rank 0 called all_reduce")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmProtocol, testing::Values(2, 3, 8));

}  // namespace tandem::protocol_test
