#include "tandem/comm/backends/gloo.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/torch_compat.h"
#include "tests/comm/group.h"
#include "tests/comm/stranger.h"
#include "tests/core/expect.h"

namespace tandem::gloo_test {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST(Gloo, FormingAGroupTimesOutIfARankIsMissing) {
  const TestStore store;
  GlooOptions options;
  options.timeout = milliseconds(500);
  const auto start = Clock::now();
  const auto message = error_of<CommError>(
      [&] { make_gloo_communicator(store.client(), "lonely", 0, 2, options); });
  EXPECT_THAT(message, Not(AnyOf(HasSubstr("(no error)"), HasSubstr("(another"))));
  EXPECT_GE(Clock::now() - start, milliseconds(400));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

TEST(Gloo, APeerThatEndsFailsOperationsImmediately) {
  std::vector<std::string> messages(3);
  const auto start = Clock::now();
  try {
    run_gloo_ranks(3, [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 2) {
        throw std::runtime_error("gone");  // its sockets close
      }
      messages[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
        for (int i = 0; i < 3; ++i) {
          comm.all_reduce(at::zeros({100}))->wait();
        }
      });
    });
    FAIL() << "the error of rank 2 was lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "gone");
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_THAT(messages[0], HasSubstr("all_reduce #"));
  EXPECT_THAT(messages[1], HasSubstr("all_reduce #"));
}

TEST(Gloo, OperationsTimeOutIfAPeerIsLate) {
  std::string message;
  const auto start = Clock::now();
  milliseconds took{0};
  run_gloo_ranks(
      2,
      [&](Communicator& comm) {
        comm.barrier();
        if (comm.rank() == 0) {
          message =
              error_of<CommError>([&] { comm.all_reduce(at::zeros({3}))->wait(); });
          took = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
        } else {
          std::this_thread::sleep_for(milliseconds(900));
        }
      },
      milliseconds(300));
  EXPECT_THAT(message, HasSubstr("all_reduce #2"));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_LT(took, milliseconds(900));
}

TEST(Gloo, BFloat16SumsHaveTheSameBitsOnAllRanks) {
  struct Reduced {
    at::Tensor sum;
    at::Tensor least;
    at::Tensor most;
    int64_t bytes;
  };
  // Several of Gloo's segments.
  constexpr int64_t kMany = 1'500'000;
  const auto values = [](int rank) {
    return (at::arange(kMany) * (0.7 + rank)).sin().to(at::kBFloat16);
  };
  const auto ranks = on_each_rank("gloo", 3, [&](Communicator& comm) {
    Reduced reduced{
        values(comm.rank()), values(comm.rank()), values(comm.rank()),
        comm.stats().bytes};
    const auto sum = comm.all_reduce(reduced.sum);
    const auto least = comm.all_reduce(reduced.least, ReduceOp::min);
    comm.all_reduce(reduced.most, ReduceOp::max)->wait();
    least->wait();
    sum->wait();
    reduced.bytes = comm.stats().bytes - reduced.bytes;
    return reduced;
  });
  const auto a = values(0);
  const auto b = values(1);
  const auto c = values(2);
  const auto exact = a.to(at::kDouble) + b.to(at::kDouble) + c.to(at::kDouble);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.bytes, 3 * 2 * kMany);
    EXPECT_TRUE(rank.sum.equal(ranks[0].sum));
    // Two additions of numbers up to 3, with 8 bits.
    EXPECT_LE((rank.sum - exact).abs().max().item<double>(), 2 * 3.0 / 256 / 2);
    EXPECT_TRUE(rank.least.equal(at::minimum(at::minimum(a, b), c)));
    EXPECT_TRUE(rank.most.equal(at::maximum(at::maximum(a, b), c)));
  }
}

GlooOptions three_attempts(milliseconds timeout) {
  GlooOptions options;
  options.timeout = timeout;
  options.attempts = 3;
  return options;
}

// Forms a group of two, with `meanwhile` in place of rank 1 before rank 1 arrives.
// Returns the sums of both ranks.
std::vector<int64_t> sums_beside(const std::function<void(Stranger&)>& meanwhile) {
  const TestStore store;
  std::vector<int64_t> sums(2);
  const auto form = [&](int rank) {
    auto options = three_attempts(milliseconds(6'000));
    options.address = rank == 0 ? "127.0.0.1" : Stranger::kRankOne;
    const auto comm = make_gloo_communicator(store.client(), "group", rank, 2, options);
    auto tensor = at::full({1}, rank + 1, at::kLong);
    comm->all_reduce(tensor)->wait();
    sums[static_cast<size_t>(rank)] = tensor.item<int64_t>();
  };
  const auto client = store.client();
  Stranger stranger(*client, "group");
  std::thread first([&] { form(0); });
  meanwhile(stranger);
  form(1);
  first.join();
  return sums;
}

TEST(Gloo, RetriesIfAForeignConnectionReplacedARank) {
  EXPECT_THAT(
      sums_beside([](Stranger& stranger) { EXPECT_TRUE(stranger.take_port(0)); }),
      ElementsAre(3, 3));
}

TEST(Gloo, AnotherMachineCannotConnect) {
  EXPECT_THAT(
      sums_beside([](Stranger& stranger) {
        EXPECT_FALSE(stranger.take_port(0, Stranger::kElsewhere));
      }),
      ElementsAre(3, 3));
}

TEST(Gloo, ReportsARepeatedForeignConnection) {
  const TestStore store;
  const auto client = store.client();
  Stranger stranger(*client, "group");
  std::string message;
  std::thread first([&] {
    message = error_of<CommError>([&] {
      make_gloo_communicator(
          store.client(), "group", 0, 2, three_attempts(milliseconds(6'000)));
    });
  });
  for (int attempt = 0; attempt < 3; ++attempt) {
    // The last attempt accepts every address.
    stranger.take_port(
        attempt, attempt < 2 ? Stranger::kRankOne : Stranger::kElsewhere);
    stranger.fail(attempt);
  }
  first.join();
  // LibTorch 2's Gloo does not accept a foreign connection as a rank, so its address is
  // not reported.
  const bool takes_places = std::string(TORCH_VERSION).rfind("1.", 0) == 0;
  EXPECT_THAT(
      message, HasSubstr(
                   takes_places ? "; 127.0.0.2 is not a rank of this run"
                                : "3 attempts failed, the last with: "));
}

}  // namespace tandem::gloo_test
