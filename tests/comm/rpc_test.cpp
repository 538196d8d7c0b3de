// Calls between ranks that are threads. tests/program/ranks/rpc_test.cpp tests
// processes.

#include "tandem/comm/rpc/rpc.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::rpc_test {

using testing::Each;
using testing::HasSubstr;

constexpr Milliseconds kShort{200};

// The parameter is a backend.
class RpcOver : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    Backends, RpcOver, testing::Values("thread", "shm", "gloo"),
    [](const auto& backend) { return std::string(backend.param); });

TEST_P(RpcOver, AnswersReachTheirCallersInAnyOrder) {
  const auto answers = on_each_rank(GetParam(), 4, [](Communicator& comm) {
    const auto rpc = make_rpc(comm);
    if (comm.rank() > 0) {
      const auto number = at::full({2}, comm.rank());
      auto answer = rpc->call(0, {"from " + std::to_string(comm.rank()), {number}});
      return answer.header + ", " + std::to_string(answer.tensors[0][1].item<int>());
    }
    std::vector<RpcRequest> requests;
    for (int i = 1; i < comm.size(); ++i) {
      requests.push_back(rpc->next());
    }
    for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
      EXPECT_EQ(request->message.header, "from " + std::to_string(request->from));
      request->reply(
          {"to " + std::to_string(request->from),
           {request->message.tensors[0].mul(10)}});
    }
    return std::string();
  });
  EXPECT_EQ(answers[1], "to 1, 10");
  EXPECT_EQ(answers[2], "to 2, 20");
  EXPECT_EQ(answers[3], "to 3, 30");
}

TEST_P(RpcOver, TheReceiverOwnsItsTensors) {
  on_each_rank(GetParam(), 2, [](Communicator& comm) {
    const auto rpc = make_rpc(comm);
    const auto mine = at::zeros({3});
    if (comm.rank() == 1) {
      const auto answer = rpc->call(0, {"", {mine}});
      comm.barrier();
      EXPECT_EQ(answer.tensors[0].sum().item<double>(), 0);
      EXPECT_EQ(mine.sum().item<double>(), 0);
    } else {
      auto request = rpc->next();
      request.message.tensors[0].fill_(1);
      request.reply({"", {mine}});
      mine.fill_(2);
      comm.barrier();
    }
    return 0;
  });
}

TEST_P(RpcOver, CallsCountInTheStatistics) {
  const auto stats = on_each_rank(GetParam(), 2, [](Communicator& comm) {
    const auto rpc = make_rpc(comm);
    comm.barrier();
    const auto before = all_stats(comm);
    if (comm.rank() == 0) {
      rpc->next().reply({"", {at::zeros({5})}});
    } else {
      rpc->call(0, {"", {at::zeros({3}), at::zeros({1}, at::kDouble)}});
    }
    auto after = all_stats(comm);
    after.operations -= before.operations;
    after.bytes -= before.bytes;
    return after;
  });
  EXPECT_EQ(stats[0].operations, 1);
  EXPECT_EQ(stats[0].bytes, 5 * 4);
  EXPECT_EQ(stats[1].operations, 1);
  EXPECT_EQ(stats[1].bytes, 3 * 4 + 8);
}

TEST(ThreadRpc, WaitsEndAtTheTimeout) {
  run_ranks(
      2,
      [](Communicator& comm) {
        const auto rpc = make_rpc(comm);
        const auto message = error_of<CommError>([&] {
          if (comm.rank() == 0) {
            rpc->call(1, {});
          } else {
            rpc->next().reply({});  // this one comes
            rpc->next();
          }
        });
        if (comm.rank() == 1) {
          expect_parts(message, {"request", "200 ms"});
        }
      },
      kShort);
  run_ranks(
      2,
      [](Communicator& comm) {
        const auto rpc = make_rpc(comm);
        if (comm.rank() == 0) {
          expect_error<CommError>([&] { rpc->call(1, {}); }, {"rank 1", "200 ms"});
        }
      },
      kShort);
}

TEST(ThreadRpc, APeerThatStoppedIsNamed) {
  for (const int stopping : {0, 2}) {
    std::vector<std::string> messages(3);
    EXPECT_THROW(
        run_ranks(
            3,
            [&](Communicator& comm) {
              const auto rpc = make_rpc(comm);
              if (comm.rank() == stopping) {
                throw DataError("[test] stops");
              }
              messages[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
                comm.rank() == 0 ? void(rpc->next()) : void(rpc->call(0, {}));
                comm.rank() == 0 ? void(rpc->next()) : void(rpc->call(0, {}));
              });
            }),
        DataError);
    messages.erase(messages.begin() + stopping);
    EXPECT_THAT(
        messages, Each(HasSubstr("rank " + std::to_string(stopping) + " stopped")));
  }
}

TEST_P(RpcOver, TensorsKeepDtypeShapeAndOrder) {
  on_each_rank(GetParam(), 3, [](Communicator& comm) {
    const auto rpc = make_rpc(comm);
    if (comm.rank() == 0) {
      for (int i = 0; i < 2; ++i) {
        auto request = rpc->next();
        request.reply(std::move(request.message));
      }
    } else {
      const auto columns = at::arange(12, at::kDouble).view({3, 4}).t();
      const auto answer = rpc->call(
          0, {std::string("a\0b", 3),
              {columns, at::full({}, 7, at::kLong), at::empty({0, 5}),
               at::full({2}, true, at::kBool)}});
      EXPECT_EQ(answer.header, std::string("a\0b", 3));
      EXPECT_EQ(answer.tensors.size(), 4u);
      EXPECT_TRUE(answer.tensors.at(0).equal(columns));
      EXPECT_EQ(answer.tensors.at(1).item<int64_t>(), 7);
      EXPECT_EQ(answer.tensors.at(1).dim(), 0);
      EXPECT_EQ(answer.tensors.at(2).sizes(), at::IntArrayRef({0, 5}));
      EXPECT_EQ(answer.tensors.at(3).scalar_type(), at::kBool);
    }
    comm.barrier();
    return 0;
  });
}

// An answer of 8 MB is sent through a ring of 256 KiB. The server, which does other
// work, continues to send it in each of its next calls.
TEST_P(RpcOver, AnswersAreCopiedBeforeReplyReturns) {
  on_each_rank(GetParam(), 4, [](Communicator& comm) {
    const auto rpc = make_rpc(comm);
    if (comm.rank() == 0) {
      const auto values = at::zeros({2'000'000});
      std::vector<RpcRequest> requests;
      for (int i = 1; i < comm.size(); ++i) {
        requests.push_back(rpc->next());
      }
      for (const auto& request : requests) {
        values.fill_(request.from);
        request.reply({"", {values}});
      }
      values.fill_(-1);
    } else {
      const auto answer = rpc->call(0, {"", {}});
      EXPECT_TRUE(answer.tensors.at(0).eq(comm.rank()).all().item<bool>());
    }
    comm.barrier();
    return 0;
  });
}

TEST(ShmRpc, WaitsEndAtTheTimeout) {
  std::atomic<int> waiting{2};
  run_shm_ranks(
      2,
      [&](Communicator& comm) {
        const auto rpc = make_rpc(comm);
        expect_error<CommError>(
            [&] {
              if (comm.rank() == 1) {
                rpc->call(0, {});
              }
              rpc->next();  // this one comes, and is not answered
              rpc->next();
            },
            {comm.rank() == 0 ? "a request" : "the answer of rank 0", "200 ms"});
        // A rank that leaves before the others' timeout is named instead.
        for (--waiting; waiting > 0;) {
          std::this_thread::yield();
        }
      },
      kShort);
}

TEST(ShmRpc, APeerThatStoppedIsNamed) {
  for (const int stopping : {0, 2}) {
    const int watching = stopping == 0 ? 1 : 0;
    std::atomic<bool> seen{false};
    EXPECT_THROW(
        run_shm_ranks(
            3,
            [&](Communicator& comm) {
              const auto rpc = make_rpc(comm);
              if (comm.rank() == stopping) {
                throw DataError("[test] stops");
              }
              if (comm.rank() != watching) {
                while (!seen) {
                  std::this_thread::yield();
                }
                return;
              }
              expect_error<CommError>(
                  [&] { watching == 0 ? void(rpc->next()) : void(rpc->call(0, {})); },
                  {"rank " + std::to_string(stopping) + " left the group"});
              seen = true;
            }),
        DataError);
  }
}

TEST(Rpc, ABackendWithoutRpcIsAnError) {
  const auto comm = make_single_communicator();
  EXPECT_FALSE(has_rpc(*comm));
  expect_error<ConfigError>([&] { return make_rpc(*comm); }, {"--backend gloo"});
}

}  // namespace tandem::rpc_test
