#include "tandem/comm/backends/thread.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::thread_test {

using testing::Each;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(milliseconds(ms));
}

at::Tensor thousand(int rank) {
  return wild_numbers(rank, 1000);
}

TEST(ThreadGroup, SumsInRankOrderForAnyDivisionAndArrival) {
  const auto expected = ((thousand(0) + thousand(1)) + thousand(2)) + thousand(3);
  ASSERT_FALSE(
      same_bits(expected, thousand(3) + thousand(2) + thousand(1) + thousand(0)));
  const std::vector<std::vector<int64_t>> cuts = {
      {1000}, {1, 999}, {63, 500, 437}, {250, 250, 250, 250}};
  for (const auto& cut : cuts) {
    for (int last = 0; last < 4; ++last) {
      std::vector<at::Tensor> sums(4);
      run_ranks(4, [&](Communicator& comm) {
        auto sum = thousand(comm.rank());
        sleep_ms(comm.rank() == last ? 5 : 0);
        int64_t from = 0;
        for (const int64_t piece : cut) {
          comm.all_reduce(sum.narrow(0, from, piece))->wait();
          from += piece;
        }
        sums[static_cast<size_t>(comm.rank())] = sum;
      });
      for (const auto& sum : sums) {
        EXPECT_TRUE(same_bits(sum, expected)) << cut.size() << " pieces, last " << last;
      }
    }
  }
}

TEST(ThreadGroup, ReduceScatterSumsInRankOrder) {
  const auto expected = (thousand(0) + thousand(1)) + thousand(2);
  std::vector<at::Tensor> parts(3);
  run_ranks(3, [&](Communicator& comm) {
    auto part = at::empty({333});
    comm.reduce_scatter(part, thousand(comm.rank()).narrow(0, 0, 999))->wait();
    parts[static_cast<size_t>(comm.rank())] = part;
  });
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(
        same_bits(parts[static_cast<size_t>(i)], expected.narrow(0, 333 * i, 333)));
  }
}

TEST(ThreadGroup, AFailureEndsMessagesAndSplitGroups) {
  struct Boom {};
  std::vector<std::string> messages(4);
  EXPECT_THROW(
      run_ranks(
          4,
          [&](Communicator& comm) {
            const auto half = comm.split(comm.rank() / 2);
            comm.barrier();
            if (comm.rank() == 3) {
              throw Boom();
            }
            messages[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
              if (comm.rank() == 2) {
                half->barrier();
              } else {
                comm.recv(at::zeros({1}), 3, 0)->wait();
              }
            });
          }),
      Boom);
  messages.pop_back();
  EXPECT_THAT(messages, Each(HasSubstr("rank 3 stopped")));
}

TEST(ThreadGroup, AnOperationOfOneRankTimesOut) {
  std::string message;
  const auto start = Clock::now();
  run_ranks(
      3,
      [&](Communicator& comm) {
        if (comm.rank() == 0) {
          message = error_of<CommError>([&] { comm.barrier(); });
        } else if (comm.rank() == 2) {
          error_of<CommError>([&] { comm.barrier(); });
        }
      },
      milliseconds(150));
  EXPECT_GE(Clock::now() - start, milliseconds(150));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  expect_parts(message, {"150 ms", "2 of 3 ranks arrived"});
}

TEST(ThreadGroup, TestReturnsWhetherAnOperationHasEnded) {
  run_ranks(2, [](Communicator& comm) {
    auto gate = at::zeros({1});
    if (comm.rank() == 0) {
      const auto work = comm.all_reduce(at::zeros({3}));
      TANDEM_CHECK(!work->test(), "ended before the other rank came");
      comm.send(gate, 1, 0)->wait();
      work->wait();
      TANDEM_CHECK(work->test(), "not ended after wait()");
    } else {
      comm.recv(gate, 0, 0)->wait();
      comm.all_reduce(at::zeros({3}))->wait();
    }
  });
}

TEST(ThreadGroup, WaitedSecondsGrowIfAPeerIsLate) {
  std::vector<double> waited(2);
  run_ranks(2, [&](Communicator& comm) {
    const auto work = comm.rank() == 0 ? comm.all_reduce(at::zeros({1})) : nullptr;
    if (comm.rank() == 1) {
      sleep_ms(120);
      comm.all_reduce(at::zeros({1}))->wait();
    } else {
      work->wait();
    }
    waited[static_cast<size_t>(comm.rank())] = comm.stats().waited_seconds;
  });
  EXPECT_GT(waited[0], 0.1);
  EXPECT_LT(waited[1], 0.1);
}

TEST(RunRanks, SetsTheRankOfEachThread) {
  std::vector<int> told(3, -1);
  run_ranks(3, [&](Communicator& comm) {
    told[static_cast<size_t>(comm.rank())] = thread_rank();
  });
  EXPECT_EQ(told, (std::vector<int>{0, 1, 2}));
}

}  // namespace tandem::thread_test
