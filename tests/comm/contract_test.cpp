// Calls that every backend rejects, compares and counts.

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/trace.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::contract_test {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using Messages = std::vector<std::string>;

class CommContract : public testing::TestWithParam<const char*> {};

TEST_P(CommContract, TensorsThatAreNotContiguousAreRejected) {
  const auto messages = on_each_rank(GetParam(), 2, [](Communicator& comm) {
    const auto gaps = at::zeros({4, 6}).narrow(1, 0, 3);
    const auto turned = at::zeros({3, 4}).t();
    const auto good = at::zeros({12});
    const auto twice = at::zeros({24});
    const std::vector<std::pair<std::string, std::function<void()>>> calls = {
        {"all_reduce", [&] { comm.all_reduce(gaps)->wait(); }},
        {"all_reduce", [&] { comm.all_reduce(turned)->wait(); }},
        {"all_reduce", [&] { comm.all_reduce(at::Tensor())->wait(); }},
        {"broadcast", [&] { comm.broadcast(gaps, 0)->wait(); }},
        {"reduce_scatter", [&] { comm.reduce_scatter(gaps, twice)->wait(); }},
        {"reduce_scatter", [&] { comm.reduce_scatter(at::zeros({6}), gaps)->wait(); }},
        {"all_gather", [&] { comm.all_gather(twice, gaps)->wait(); }},
        {"scatter", [&] { comm.scatter(gaps, twice, comm.rank())->wait(); }},
        {"gather", [&] { comm.gather(twice, gaps, comm.rank())->wait(); }},
        {"send", [&] { comm.send(gaps, 1 - comm.rank(), 1)->wait(); }},
        {"recv", [&] { comm.recv(gaps, 1 - comm.rank(), 1)->wait(); }}};
    Messages wrong;
    for (const auto& [name, call] : calls) {
      const auto message = error_of<ConfigError>(call);
      if (message.find(name) == std::string::npos ||
          message.find("not contiguous") == std::string::npos) {
        wrong.push_back(name + ": " + message);
      }
    }
    comm.all_reduce(good)->wait();  // the group is still in step
    return wrong;
  });
  EXPECT_THAT(messages, Each(testing::IsEmpty()));
}

TEST_P(CommContract, TensorsOnOtherDevicesAreRejected) {
  const auto messages = on_each_rank(GetParam(), 2, [](Communicator& comm) {
    const auto elsewhere = at::empty({12}, at::TensorOptions(at::kMeta));
    return error_of<ConfigError>([&] { comm.all_reduce(elsewhere)->wait(); });
  });
  EXPECT_THAT(
      messages, Each(HasSubstr("all_reduce got a tensor on meta, but backend")));
}

TEST_P(CommContract, InvalidRootsPeersAndSizesAreRejected) {
  for (const int size : {1, 3}) {
    const auto messages = on_each_rank(GetParam(), size, [](Communicator& comm) {
      const auto x = at::zeros({4});
      const auto all = at::zeros({4 * comm.size()});
      Messages got;
      for (const int root : {-1, comm.size()}) {
        got.push_back(error_of<ConfigError>([&] { comm.broadcast(x, root)->wait(); }));
        got.push_back(
            error_of<ConfigError>([&] { comm.scatter(x, all, root)->wait(); }));
        got.push_back(
            error_of<ConfigError>([&] { comm.gather(all, x, root)->wait(); }));
        got.push_back(error_of<ConfigError>([&] { comm.send(x, root, 0)->wait(); }));
        got.push_back(error_of<ConfigError>([&] { comm.recv(x, root, 0)->wait(); }));
      }
      const auto range = "expected 0 to " + std::to_string(comm.size() - 1);
      for (auto& message : got) {
        message = message.find(range) == std::string::npos ? message : "refused";
      }
      const auto odd = at::zeros({4 * comm.size() + 1});
      const auto other = at::zeros({4 * comm.size()}, at::kDouble);
      for (const auto& bad : {odd, other}) {
        got.push_back(
            error_of<ConfigError>([&] { comm.reduce_scatter(x, bad)->wait(); }));
        got.push_back(error_of<ConfigError>([&] { comm.all_gather(bad, x)->wait(); }));
        got.push_back(
            error_of<ConfigError>([&] { comm.scatter(x, bad, comm.rank())->wait(); }));
        got.push_back(
            error_of<ConfigError>([&] { comm.gather(bad, x, comm.rank())->wait(); }));
      }
      for (size_t i = 10; i < got.size(); ++i) {
        got[i] = got[i].find("elements of one dtype") == std::string::npos ? got[i]
                                                                           : "refused";
      }
      comm.barrier();
      return got;
    });
    for (const auto& got : messages) {
      EXPECT_THAT(got, Each("refused"));
    }
  }
}

TEST_P(CommContract, MessagesToTheSameRankAreRejected) {
  for (const int size : {1, 2}) {
    const auto messages = on_each_rank(GetParam(), size, [](Communicator& comm) {
      const auto x = at::zeros({4});
      return Messages{
          error_of<ConfigError>([&] { comm.send(x, comm.rank(), 0)->wait(); }),
          error_of<ConfigError>([&] { comm.recv(x, comm.rank(), 0)->wait(); })};
    });
    for (const auto& got : messages) {
      EXPECT_THAT(got, Each(HasSubstr("which is this rank")));
    }
  }
}

TEST_P(CommContract, CheckEqualNamesARankThatDiffers) {
  for (int size = 1; size <= 4; ++size) {
    for (int odd_one = 0; odd_one < size; ++odd_one) {
      const auto messages = on_each_rank(GetParam(), size, [&](Communicator& comm) {
        comm.check_equal("the plans", "equal");
        const std::string text = comm.rank() == odd_one ? "1 2 4" : "1 2 3";
        return error_of<ConfigError>([&] { comm.check_equal("the plans", text); });
      });
      const int named = odd_one == 0 ? 1 : odd_one;
      if (size == 1) {
        EXPECT_THAT(messages, Each("(no error)"));
      } else {
        EXPECT_THAT(
            messages,
            Each(HasSubstr(
                "the plans differ: rank 0 and rank " + std::to_string(named) + ";")));
      }
    }
  }
}

// The text needs two broadcasts.
TEST_P(CommContract, BroadcastTextCopiesLongTexts) {
  const std::string text = std::string(size_t{16} << 20, 'a') + "the end";
  const auto same = on_each_rank(GetParam(), 3, [&](Communicator& comm) {
    return comm.broadcast_text(comm.rank() == 1 ? text : "mine", 1) == text &&
           comm.broadcast_text("", 0).empty();
  });
  EXPECT_THAT(same, Each(true));
}

TEST_P(CommContract, OnRank0ReturnsItsTextOnEveryRank) {
  for (int size = 1; size <= 4; ++size) {
    const auto texts = on_each_rank(GetParam(), size, [&](Communicator& comm) {
      return comm.on_rank_0([&] { return "rank " + std::to_string(comm.rank()); });
    });
    EXPECT_THAT(texts, Each("rank 0"));
  }
}

TEST_P(CommContract, AnErrorOnRank0IsThrownOnEveryRank) {
  for (int size = 1; size <= 4; ++size) {
    const auto messages = on_each_rank(GetParam(), size, [](Communicator& comm) {
      const auto message = error_of<DataError>([&] {
        comm.on_rank_0([]() -> std::string { throw DataError("it is missing"); });
      });
      comm.barrier();  // The group is still in step.
      return message;
    });
    EXPECT_THAT(messages, Each("it is missing"));
  }
}

// Returns the number of spans of the row "compute" in a category.
int64_t count_spans(const Trace& trace, const std::string& category) {
  const auto spans = trace.compute_spans();
  return std::count_if(spans.begin(), spans.end(), [&](const Trace::Span& span) {
    return span.category == category;
  });
}

TEST_P(CommContract, TheTraceHasOperationsOfTheGroupAndOfGroupsSplitFromIt) {
  const auto found = on_each_rank(GetParam(), 3, [](Communicator& comm) {
    Trace trace;
    comm.set_trace(&trace);
    const auto part = comm.split(0);
    {
      const TraceSection section(&trace, "user_annotation", "step");
      comm.all_reduce(at::zeros({300'000}), ReduceOp::sum, "large")->wait();
      part->all_gather(at::zeros({6}), at::zeros({2}))->wait();
    }
    comm.barrier("after the section");
    comm.set_trace(nullptr);
    std::string text;
    for (const auto& operation : trace.operations()) {
      text += operation.category + " " + operation.name + " " +
              std::to_string(operation.bytes) + "; ";
    }
    return text + std::to_string(count_spans(trace, "launch")) + " launches, " +
           std::to_string(count_spans(trace, "wait")) + " waits";
  });
  EXPECT_THAT(
      found, Each(std::string("all_reduce large 1200000; all_gather all_gather 24; "
                              "2 launches, 2 waits")));
}

// Gloo's operations end in any order, and MPI detects ends only in test() and wait().
class TracedEnds : public testing::TestWithParam<const char*> {};

TEST_P(TracedEnds, AnOperationEndsBeforeARankWaitsForIt) {
  const auto ended = on_each_rank(GetParam(), 3, [](Communicator& comm) {
    Trace trace;
    comm.set_trace(&trace);
    const TraceSection section(&trace, "user_annotation", "step");
    const auto first = comm.all_reduce(at::zeros({300'000}));
    comm.all_reduce(at::zeros({300'000}))->wait();
    const int64_t before_wait = trace.now_ns();
    first->wait();
    comm.set_trace(nullptr);
    const auto operation = trace.operations().at(0);
    return operation.start_ns + operation.duration_ns <= before_wait;
  });
  EXPECT_THAT(ended, Each(true));
}

TEST_P(CommContract, StatsCountOperationsAndTheirBytes) {
  const auto stats = on_each_rank(GetParam(), 2, [](Communicator& comm) {
    TANDEM_CHECK(comm.stats().operations == 0, "counted before the first");
    comm.all_reduce(at::zeros({5}))->wait();
    comm.broadcast(at::zeros({3}, at::kDouble), 1)->wait();
    return comm.stats();
  });
  for (const auto& one : stats) {
    EXPECT_EQ(one.operations, 2);
    EXPECT_EQ(one.bytes, 5 * 4 + 3 * 8);
    EXPECT_GE(one.waited_seconds, 0);
  }
}

// mpi_test.cpp tests MPI's errors, because a process that fails there ends its run.
class CommErrors : public testing::TestWithParam<const char*> {};

TEST_P(CommErrors, ErrorsNameTheOperationItsNumberAndItsLabel) {
  const auto messages = on_each_rank(GetParam(), 2, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) {
      return std::string();
    }
    const auto work = comm.all_reduce(at::zeros({3}), ReduceOp::sum, "bucket 4");
    return error_of<CommError>([&] { work->wait(std::chrono::milliseconds(100)); });
  });
  EXPECT_THAT(messages[0], HasSubstr("all_reduce #2 (bucket 4)"));
}

// Gloo and MPI do not check that ranks call the same operation, nor do they name the
// rank that failed.
class CheckedRanks : public testing::TestWithParam<const char*> {};

TEST_P(CheckedRanks, DifferentOperationsAreAnErrorOnAllRanks) {
  using Call = std::function<WorkPtr(Communicator&)>;
  const auto reduce = [](int64_t count, at::ScalarType dtype, ReduceOp op) {
    return [=](Communicator& comm) {
      return comm.all_reduce(at::zeros({count}, dtype), op);
    };
  };
  const auto broadcast = [](int root) {
    return [=](Communicator& comm) { return comm.broadcast(at::zeros({4}), root); };
  };
  const auto sum = ReduceOp::sum;
  struct Case {
    Call of_rank_0;
    Call of_others;
    std::string message;
  };
  const std::vector<Case> cases = {
      {reduce(4, at::kFloat, sum), broadcast(0), "called broadcast from "},
      {broadcast(0), broadcast(1), "1 of 4 Float"},
      {reduce(4, at::kFloat, sum), reduce(5, at::kFloat, sum),
       "called all_reduce sum of 5 Float"},
      {reduce(4, at::kFloat, sum), reduce(40'000, at::kFloat, sum),
       "called all_reduce sum of 40000 Float"},
      {reduce(4, at::kFloat, sum), reduce(4, at::kDouble, sum),
       "called all_reduce sum of 4 Double"},
      {reduce(4, at::kFloat, sum), reduce(4, at::kFloat, ReduceOp::max),
       "called all_reduce max of 4 Float"}};
  for (const auto& one : cases) {
    const auto messages = on_each_rank(GetParam(), 3, [&](Communicator& comm) {
      const auto& call = comm.rank() == 0 ? one.of_rank_0 : one.of_others;
      return error_of<CommError>([&] { call(comm)->wait(); });
    });
    EXPECT_THAT(
        messages, Each(AllOf(HasSubstr("rank 0 called "), HasSubstr(one.message))));
  }
}

TEST_P(CheckedRanks, AMessageOfAnotherSizeIsAnError) {
  const bool sender_waits = GetParam() == std::string("thread");
  const auto messages = on_each_rank(GetParam(), 2, [&](Communicator& comm) {
    const auto tensor = at::zeros({4 + comm.rank()});
    return error_of<CommError>([&] {
      (comm.rank() == 0 ? comm.send(tensor, 1, 3) : comm.recv(tensor, 0, 3))->wait();
    });
  });
  EXPECT_THAT(
      messages[0], HasSubstr(sender_waits ? "sizes or dtypes differ" : "(no error)"));
  EXPECT_THAT(messages[1], HasSubstr("sizes or dtypes differ"));
}

TEST_P(CheckedRanks, ARankThatFailsIsNamed) {
  struct Boom {};
  std::vector<int> peers(3, -1);
  std::vector<std::string> messages(3);
  const auto body = [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) {
      // The other ranks wait meanwhile.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      throw Boom();
    }
    try {
      comm.all_reduce(at::zeros({4}))->wait();
    } catch (const CommError& error) {
      peers[static_cast<size_t>(comm.rank())] = error.peer().value_or(-2);
      messages[static_cast<size_t>(comm.rank())] = error.what();
      throw;
    }
  };
  EXPECT_THROW(run_backend(GetParam(), 3, body), Boom);
  EXPECT_EQ(peers, (std::vector<int>{1, -1, 1}));
  messages.erase(messages.begin() + 1);
  const bool is_thread = GetParam() == std::string("thread");
  EXPECT_THAT(messages, Each(HasSubstr(is_thread ? "rank 1 stopped" : "rank 1 left")));
}

TEST(NamedGroups, ShareAStore) {
  for (const bool shm : {false, true}) {
    const TestStore store;
    std::vector<double> sums(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const std::string name = i < 2 ? "first" : "second";
        const auto comm = shm ? make_shm_communicator(store.client(), name, i % 2, 2)
                              : make_gloo_communicator(store.client(), name, i % 2, 2);
        auto tensor = at::zeros({1}, at::kDouble).fill_(1 << i);
        comm->all_reduce(tensor)->wait();
        sums[static_cast<size_t>(i)] = tensor.item<double>();
        comm->barrier();
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(sums, (std::vector<double>{3, 3, 12, 12}));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, CheckedRanks, testing::Values("thread", "shm"),
    [](const auto& backend) { return std::string(backend.param); });

INSTANTIATE_TEST_SUITE_P(
    Backends, TracedEnds, testing::Values("thread", "shm", "hierarchical"),
    [](const auto& backend) { return std::string(backend.param); });

INSTANTIATE_TEST_SUITE_P(
    Backends, CommErrors, testing::Values("thread", "shm", "gloo", "hierarchical"),
    [](const auto& backend) { return std::string(backend.param); });

INSTANTIATE_TEST_SUITE_P(
    Backends, CommContract, testing::ValuesIn(all_backends()),
    [](const auto& backend) { return std::string(backend.param); });

TEST(SingleCommunicator, OperationsDoNothingAndAreNotCounted) {
  const auto comm = make_single_communicator();
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->size(), 1);
  const auto x = at::zeros({3}).fill_(2);
  auto gathered = at::zeros({3});
  comm->all_reduce(x)->wait();
  comm->all_gather(gathered, x)->wait();
  comm->barrier();
  EXPECT_TRUE(comm->broadcast(x, 0)->test());
  EXPECT_TRUE(x.eq(2).all().item<bool>());
  EXPECT_TRUE(gathered.equal(x));
  EXPECT_EQ(comm->split(3)->size(), 1);
  EXPECT_EQ(comm->stats().operations, 0);
}

}  // namespace tandem::contract_test
