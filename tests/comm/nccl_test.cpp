// The communicator over NCCL on devices in main memory: streams that run late and in a
// random order, and an NCCL that moves data when they get there (fake_device.h). What
// every backend does is in collectives_test.cpp and contract_test.cpp.

#include "tandem/comm/nccl/nccl_communicator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/places.h"

namespace tandem::nccl_test {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kSeeds = 10;
constexpr int64_t kCount = 7;
// For what ends at the timeout; the barrier before it must not, on a busy machine.
constexpr milliseconds kSoon{2'000};

// Ranks whose tensors are written and read by kernels on their current streams. `body`
// gets a function that puts a kernel there, and one that waits for all of them.
struct OnStream {
  Communicator& comm;
  FakeDevices& devices;

  void run(std::function<void()> kernel) const {
    devices.run(comm.rank(), std::move(kernel));
  }
  void synchronize() const {
    devices.synchronize(comm.rank());
  }
};

// At many orders of what streams do. Nothing may be left or have been misused.
void at_each_seed(int size, const std::function<void(const OnStream&)>& body) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeDevices devices(seed, FakeDevices::Caller::stream);
    run_nccl_ranks(devices, size, [&](Communicator& comm) { body({comm, devices}); });
    EXPECT_THAT(devices.misuse(), IsEmpty());
    EXPECT_EQ(devices.num_alive(), 0);
    EXPECT_EQ(devices.num_aborted(), 0);
  }
}

at::Tensor numbers(int rank, int64_t count = kCount) {
  return at::arange(count).to(at::kFloat) + 100 * rank;
}

at::Tensor sum_of_numbers(int size, int64_t count = kCount) {
  return at::arange(count).to(at::kFloat) * size + 50 * size * (size - 1);
}

TEST(Nccl, OperationsComeAfterWhatTheCallerPutOnItsStreamAndBeforeWhatFollowsWait) {
  at_each_seed(3, [](const OnStream& on) {
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> results;
    for (int i = 0; i < 4; ++i) {
      const auto x = at::full({kCount}, -1.0);
      const auto result = at::full({kCount}, -1.0);
      on.run([=, rank = on.comm.rank()] { x.copy_(numbers(rank)); });
      on.comm.all_reduce(x, ReduceOp::sum)->wait();
      on.run([=] { result.copy_(x).add_(i); });
      // The next operation reads what this kernel wrote.
      on.comm.broadcast(result, i % on.comm.size())->wait();
      on.run([=] { x.copy_(result).mul_(2); });
      tensors.push_back(x);
    }
    on.synchronize();
    for (int i = 0; i < 4; ++i) {
      TANDEM_CHECK(
          tensors[static_cast<size_t>(i)].equal(
              (sum_of_numbers(on.comm.size()) + i) * 2),
          "round " + std::to_string(i));
    }
  });
}

TEST(Nccl, EveryKindOfOperationIsOrderedWithTheStream) {
  at_each_seed(3, [](const OnStream& on) {
    auto& comm = on.comm;
    const int size = comm.size();
    const int rank = comm.rank();
    const auto whole = at::full({size * kCount}, -1.0);
    const auto part = at::full({kCount}, -1.0);
    const auto all = at::full({size * kCount}, -1.0);
    on.run([=] { whole.copy_(numbers(rank, size * kCount)); });
    comm.reduce_scatter(part, whole)->wait();
    on.run([=] { part.add_(rank); });
    comm.all_gather(all, part)->wait();
    on.run([=] { all.mul_(2); });
    comm.scatter(part, all, 1)->wait();
    on.run([=] { part.add_(1); });
    comm.gather(whole, part, 2)->wait();
    on.run([=] { whole.mul_(3); });
    comm.broadcast(whole, 2)->wait();
    on.run([=] { all.copy_(whole); });
    on.synchronize();
    auto expected = sum_of_numbers(size, size * kCount);
    for (int other = 0; other < size; ++other) {
      expected.narrow(0, other * kCount, kCount).add_(other);
    }
    TANDEM_CHECK(all.equal((expected * 2 + 1) * 3), "the chain");
  });
}

// --- graphs ---

// Adds the sum of what ranks have to `result`, and twice that, in two operations that
// are under way at once.
void add_sums(const OnStream& on, const at::Tensor& x, const at::Tensor& result) {
  const auto twice = at::full({kCount}, -1.0);
  on.run([=] { x.add_(1); });
  const auto sum = on.comm.all_reduce(x);
  on.run([=] { twice.fill_(1); });
  const auto other = on.comm.all_reduce(twice);
  sum->wait();
  on.run([=] { result.add_(x); });
  other->wait();
  on.run([=] { result.add_(twice, 100); });
}

TEST(Nccl, AGraphRunsItsOperationsEachTimeAlsoWhereOthersMakeThemOneByOne) {
  for (const bool all_capture : {true, false}) {
    at_each_seed(3, [&](const OnStream& on) {
      on.comm.barrier();
      const auto x = at::zeros({kCount});
      const auto result = at::zeros({kCount});
      std::function<void()> step = [&] { add_sums(on, x, result); };
      if (all_capture || on.comm.rank() == 1) {
        const auto graph = on.devices.capture(on.comm.rank(), step);
        on.synchronize();
        TANDEM_CHECK(x.equal(at::zeros({kCount})), "something ran in the capture");
        step = [graph, &on] { on.comm.launch_graph(graph, {}); };
      }
      float expected_x = 0;
      float expected = 0;
      for (int i = 0; i < 3; ++i) {
        step();
        expected_x = 3 * (expected_x + 1);
        expected += expected_x + 300;
        // One that is in no graph.
        on.comm.broadcast(result, i % 3)->wait();
      }
      on.synchronize();
      TANDEM_CHECK(result.equal(at::full({kCount}, expected)), "sums of three steps");
    });
  }
}

TEST(Nccl, WhatTheHostWaitsForIsInNoGraph) {
  at_each_seed(2, [](const OnStream& on) {
    on.comm.barrier();
    const auto x = at::zeros({kCount});
    on.devices.capture(on.comm.rank(), [&] {
      const auto work = on.comm.all_reduce(x);
      const auto message = error_of<CommError>([&] { work->wait_on_host(); });
      TANDEM_CHECK(
          message.find("the host cannot wait for what a graph holds") !=
              std::string::npos,
          message);
      work->wait();
    });
  });
}

// The devices in main memory see what CUDA would refuse.
TEST(Nccl, AnOperationThatACaptureDoesNotWaitForIsMisuse) {
  FakeDevices devices(1, FakeDevices::Caller::stream);
  run_nccl_ranks(devices, 2, [&](Communicator& comm) {
    comm.barrier();
    const auto x = at::zeros({kCount});
    WorkPtr not_waited_for;
    devices.capture(comm.rank(), [&] { not_waited_for = comm.all_reduce(x); });
  });
  EXPECT_THAT(devices.misuse(), Each(HasSubstr("before what it forked came back")));
  EXPECT_EQ(devices.misuse().size(), 2u);
}

TEST(Nccl, WaitBlocksNobody) {
  at_each_seed(2, [](const OnStream& on) {
    on.comm.barrier();  // connects the ranks
    const auto x = at::full({kCount}, -1.0);
    std::atomic<bool> open{false};
    on.devices.run(
        on.comm.rank(), [=, rank = on.comm.rank()] { x.copy_(numbers(rank)); },
        [&] { return open.load(); });
    const auto work = on.comm.all_reduce(x);
    work->wait();
    TANDEM_CHECK(!work->test(), "ended before what it comes after");
    open = true;
    on.synchronize();
    TANDEM_CHECK(x.equal(sum_of_numbers(2)), "sum");
  });
}

TEST(Nccl, AnOperationEndsWhileALaterOneIsNotOnItsStreamYet) {
  FakeDevices devices(9, FakeDevices::Caller::stream);
  std::atomic<bool> in_progress{false};
  const auto make = [&](const std::shared_ptr<StoreClient>& store, int rank) {
    auto device = devices.device(rank);
    auto nccl = std::make_shared<NcclApi>(*device.nccl);
    if (rank == 0) {
      nccl->comm_get_async_error = [&in_progress, ask = nccl->comm_get_async_error](
                                       NcclComm comm, NcclResult* state) {
        const auto result = ask(comm, state);
        *state = in_progress ? NcclResult::in_progress : *state;
        return result;
      };
    }
    device.nccl = nccl;
    NcclOptions options;
    options.timeout = milliseconds(20'000);
    return make_nccl_communicator(device, store, "test", rank, 2, options);
  };
  run_joining_ranks(
      2,
      [&](Communicator& comm) {
        const auto x = numbers(comm.rank());
        const auto y = numbers(comm.rank());
        const auto first = comm.all_reduce(x);
        first->wait();
        const bool switches = comm.rank() == 0;
        if (switches) {
          in_progress = true;
        }
        const auto second = comm.all_reduce(y);
        first->wait_on_host();
        TANDEM_CHECK(x.equal(sum_of_numbers(2)), "first");
        if (switches) {
          in_progress = false;
        }
        second->wait_on_host();
        TANDEM_CHECK(y.equal(sum_of_numbers(2)), "second");
      },
      make);
  EXPECT_THAT(devices.misuse(), IsEmpty());
}

TEST(Nccl, TheHostReadsAfterWaitOnHostAfterATimeoutAndAfterTest) {
  at_each_seed(2, [](const OnStream& on) {
    for (int way = 0; way < 3; ++way) {
      const auto x = at::full({kCount}, -1.0);
      on.run([=, rank = on.comm.rank()] { x.copy_(numbers(rank)); });
      const auto work = on.comm.all_reduce(x);
      if (way == 0) {
        work->wait_on_host();
      } else if (way == 1) {
        work->wait(milliseconds(10'000));
      } else {
        while (!work->test()) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
      }
      TANDEM_CHECK(x.equal(sum_of_numbers(2)), "way " + std::to_string(way));
      TANDEM_CHECK(work->test(), "not ended");
    }
  });
}

TEST(Nccl, WhatTheGroupSaysToTheHostIsTrueOnADevice) {
  at_each_seed(3, [](const OnStream& on) {
    auto& comm = on.comm;
    const auto all = comm.stack(at::full({2}, comm.rank() + 5, at::kInt));
    for (int other = 0; other < comm.size(); ++other) {
      TANDEM_CHECK(all[other].eq(other + 5).all().item<bool>(), "stack");
    }
    const auto text = comm.broadcast_text("from " + std::to_string(comm.rank()), 1);
    TANDEM_CHECK(text == "from 1", text);
    comm.check_equal("the plans", "equal");
    const auto half = comm.split(comm.rank() % 2);
    const auto x = at::full({1}, -1.0);
    on.run([=, rank = comm.rank()] { x.fill_(1 << rank); });
    half->all_reduce(x)->wait();
    on.synchronize();
    TANDEM_CHECK(x.item<float>() == (comm.rank() == 1 ? 2 : 5), "split");
  });
}

// Each sends to the next before it receives from the one before, whose data may come
// only when all have.
TEST(Nccl, AllMaySendBeforeTheyReceive) {
  at_each_seed(3, [](const OnStream& on) {
    auto& comm = on.comm;
    const int to = (comm.rank() + 1) % comm.size();
    const int from = (comm.rank() + comm.size() - 1) % comm.size();
    std::vector<at::Tensor> sent;
    std::vector<at::Tensor> got;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 3; ++i) {
      sent.push_back(at::full({kCount}, -1.0));
      on.run([x = sent.back(), i, rank = comm.rank()] {
        x.copy_(numbers(rank) + 1000 * i);
      });
      works.push_back(comm.send(sent.back(), to, i));
    }
    for (int i = 0; i < 3; ++i) {
      got.push_back(at::full({kCount}, -1.0));
      comm.recv(got.back(), from, i)->wait();
      on.run([x = got.back()] { x.mul_(2); });
    }
    for (const auto& work : works) {
      work->wait();
    }
    on.synchronize();
    for (int i = 0; i < 3; ++i) {
      TANDEM_CHECK(
          got[static_cast<size_t>(i)].equal((numbers(from) + 1000 * i) * 2),
          "message " + std::to_string(i));
    }
  });
}

// As a pipeline does it: activations one way and gradients the other cross, and the
// sends are waited for at the end.
TEST(Nccl, BothDirectionsGoBesideEachOther) {
  at_each_seed(2, [](const OnStream& on) {
    auto& comm = on.comm;
    const int peer = 1 - comm.rank();
    constexpr int kMessages = 4;
    std::vector<at::Tensor> sent;
    std::vector<WorkPtr> works;
    for (int i = 0; i < kMessages; ++i) {
      const auto got = at::full({kCount}, -1.0);
      if (comm.rank() == 1) {
        comm.recv(got, peer, i)->wait();
      }
      sent.push_back(at::full({kCount}, -1.0));
      on.run([=, x = sent.back(), rank = comm.rank()] {
        x.copy_(rank == 0 ? numbers(i) : got * 2);
      });
      works.push_back(comm.send(sent.back(), peer, i));
    }
    for (int i = 0; comm.rank() == 0 && i < kMessages; ++i) {
      const auto got = at::full({kCount}, -1.0);
      comm.recv(got, peer, i)->wait();
      on.synchronize();
      TANDEM_CHECK(got.equal(numbers(i) * 2), "answer " + std::to_string(i));
    }
    for (const auto& work : works) {
      work->wait();
    }
    on.synchronize();
  });
}

TEST(Nccl, ReducesTheDtypesOfItsTable) {
  run_nccl_ranks(2, [](Communicator& comm) {
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
          at::kChar, at::kByte}) {
      const auto x = at::full({3}, comm.rank() + 1, dtype);
      comm.all_reduce(x)->wait();
      TANDEM_CHECK(x.eq(3).all().item<bool>(), c10::toString(dtype));
    }
    const auto flags = at::arange(2).eq(comm.rank());
    comm.all_reduce(flags, ReduceOp::max)->wait();
    TANDEM_CHECK(flags.all().item<bool>(), "bool");
    const auto error = error_of<ConfigError>(
        [&] { comm.all_reduce(at::zeros({3}, at::kShort))->wait(); });
    TANDEM_CHECK(error.find("cannot reduce Short") != std::string::npos, error);
  });
}

TEST(Nccl, TensorsOnAnotherDeviceAreRefused) {
  FakeDevices devices(1);
  const TestStore store;
  std::vector<std::string> messages(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto device = devices.device(rank);
      device.device = at::Device(at::kMeta);
      const auto comm = make_nccl_communicator(device, store.client(), "meta", rank, 2);
      messages[static_cast<size_t>(rank)] =
          error_of<InternalError>([&] { comm->all_reduce(at::zeros({3}))->wait(); });
    });
  }
  for (auto& rank : ranks) {
    rank.join();
  }
  EXPECT_THAT(
      messages, Each(AllOf(
                    HasSubstr("all_reduce over NCCL on meta"),
                    HasSubstr("given a tensor on cpu"))));
}

// --- Failures: one line that says what, in time, and nothing is left.

void expect_nothing_left(const FakeDevices& devices) {
  EXPECT_THAT(devices.misuse(), IsEmpty());
  EXPECT_EQ(devices.num_alive(), 0);
}

testing::Matcher<const std::string&> one_line() {
  return Not(HasSubstr("\n"));
}

TEST(Nccl, ARankThatNeverComesIsNamedWhenTheGroupForms) {
  FakeDevices devices(1);
  {
    const TestStore store;
    NcclOptions options;
    options.timeout = milliseconds(200);
    std::vector<std::string> messages(2);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        messages[static_cast<size_t>(rank)] = error_of<CommError>([&] {
          make_nccl_communicator(
              devices.device(rank), store.client(), "lonely", rank, 3, options);
        });
      });
    }
    for (auto& rank : ranks) {
      rank.join();
    }
    EXPECT_THAT(
        messages, Each(AllOf(
                      one_line(), HasSubstr("forming the NCCL group failed"),
                      HasSubstr("rank 2 did not come within 200 ms"))));
  }
  EXPECT_GE(devices.num_aborted(), 1);
  expect_nothing_left(devices);
}

// What each rank but the last says when that leaves the others alone.
std::vector<std::string> left_alone(
    FakeDevices& devices, int size, milliseconds timeout,
    const std::function<void(const OnStream&)>& alone) {
  std::vector<std::string> messages(static_cast<size_t>(size - 1));
  run_nccl_ranks(
      devices, size,
      [&](Communicator& comm) {
        comm.barrier();
        if (comm.rank() < size - 1) {
          messages[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
            alone({comm, devices});
          });
        }
      },
      timeout);
  return messages;
}

TEST(Nccl, AHostThatWaitsGetsTheErrorAtTheTimeout) {
  for (const bool with_time : {false, true}) {
    FakeDevices devices(2, FakeDevices::Caller::stream);
    const auto messages = left_alone(devices, 3, kSoon, [&](const OnStream& on) {
      const auto x = at::zeros({3});
      const auto work = on.comm.all_reduce(x, ReduceOp::sum, "bucket 4");
      if (with_time) {
        work->wait(milliseconds(100));
      } else {
        work->wait_on_host();
      }
    });
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_THAT(
          messages[rank],
          AllOf(
              one_line(), HasSubstr("all_reduce #2 (bucket 4)"),
              HasSubstr(
                  "rank " + std::to_string(rank) + " had no answer within " +
                  (with_time ? "100 ms" : "2000 ms"))));
    }
    EXPECT_EQ(devices.num_aborted(), 2);
    expect_nothing_left(devices);
  }
}

// The rank that does not come has no part in the others' graphs either.
TEST(Nccl, AGraphThatDoesNotEndIsAnErrorAtTheTimeout) {
  FakeDevices devices(3, FakeDevices::Caller::stream);
  const auto messages = left_alone(devices, 3, kSoon, [&](const OnStream& on) {
    const auto x = at::zeros({3});
    const auto graph =
        on.devices.capture(on.comm.rank(), [&] { on.comm.all_reduce(x)->wait(); });
    on.comm.launch_graph(graph, {});
    on.comm.launch_graph(graph, {});
    on.synchronize();
    on.comm.launch_graph(graph, {});
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(
        messages[rank],
        AllOf(
            one_line(), HasSubstr("graph"),
            HasSubstr(
                "rank " + std::to_string(rank) + " had no answer within 2000 ms")));
  }
  expect_nothing_left(devices);
}

// The host does not wait in a call of the communicator but, as .item() does, for its
// device: without an abort it would do so for ever.
TEST(Nccl, AHostThatWaitsForItsDeviceGoesOnAfterTheTimeoutAndThenGetsTheError) {
  FakeDevices devices(3, FakeDevices::Caller::stream);
  const auto messages = left_alone(devices, 2, kSoon, [&](const OnStream& on) {
    const auto x = at::zeros({3});
    bool ran = false;
    // Both ranks have called, so that NCCL has it on the stream; one is stuck.
    const auto work = on.comm.all_reduce(x, ReduceOp::sum, "bucket 4");
    work->wait();
    on.run([&] { ran = true; });
    on.synchronize();
    TANDEM_CHECK(ran, "the stream did not go on");
    TANDEM_CHECK(work->test(), "failed, and so ended");
    on.comm.all_reduce(x, ReduceOp::sum, "bucket 5")->wait();
  });
  EXPECT_THAT(
      messages[0],
      AllOf(
          one_line(), HasSubstr("all_reduce #3 (bucket 5)"),
          HasSubstr(
              "all_reduce #2 failed before: rank 0 had no answer within 2000 ms")));
  EXPECT_EQ(devices.num_aborted(), 1);
  expect_nothing_left(devices);
}

TEST(Nccl, ARankThatFailsInTheMiddleEndsTheOthersWaits) {
  for (const bool tells : {false, true}) {
    FakeDevices devices(4, FakeDevices::Caller::stream);
    if (tells) {
      devices.tell_of_aborts();
    }
    std::vector<std::string> messages(2);
    const auto body = [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 2) {
        const auto x = at::zeros({3});
        const auto late = comm.recv(x, 0, 1);  // never sent
        late->wait(milliseconds(50));          // fails, and takes its group along
      }
      messages[static_cast<size_t>(comm.rank())] =
          error_of<CommError>([&] { comm.barrier("end"); });
    };
    EXPECT_THAT(
        error_of<CommError>([&] { run_nccl_ranks(devices, 3, body, kSoon); }),
        HasSubstr("recv #2 failed: rank 2 had no answer within 50 ms"));
    EXPECT_THAT(
        messages,
        Each(AllOf(
            one_line(), HasSubstr("all_reduce #2 (end) failed"),
            HasSubstr(
                tells ? "remote process exited or there was a network error (in main "
                        "memory)"
                      : "had no answer within 2000 ms"))));
    expect_nothing_left(devices);
  }
}

TEST(Nccl, AnErrorThatNcclReportsEndsAllThatIsUnderWay) {
  FakeDevices devices(5, FakeDevices::Caller::stream);
  const auto messages =
      left_alone(devices, 2, milliseconds(20'000), [&](const OnStream& on) {
        const auto x = at::zeros({3});
        const auto y = at::zeros({3});
        const auto first = on.comm.all_reduce(x, ReduceOp::sum, "bucket 0");
        const auto second = on.comm.all_reduce(y, ReduceOp::sum, "bucket 1");
        devices.report(0, NcclResult::unhandled_cuda_error);
        const auto error = error_of<CommError>([&] { first->wait(); });
        TANDEM_CHECK(
            error.find("all_reduce #2 (bucket 0) failed: NCCL says unhandled cuda "
                       "error (in main memory)") != std::string::npos,
            error);
        second->wait_on_host();
      });
  EXPECT_THAT(
      messages[0],
      AllOf(
          one_line(), HasSubstr("all_reduce #3 (bucket 1) failed: "),
          HasSubstr("all_reduce #2 failed before: NCCL says unhandled cuda error")));
  EXPECT_EQ(devices.num_aborted(), 1);
  expect_nothing_left(devices);
}

TEST(Nccl, AMessageThatNobodySendsEndsAtTheTimeout) {
  FakeDevices devices(6, FakeDevices::Caller::stream);
  const auto messages = left_alone(devices, 2, kSoon, [](const OnStream& on) {
    on.comm.recv(at::zeros({3}), 1, 7, "activations")->wait();
  });
  EXPECT_THAT(
      messages[0], AllOf(
                       one_line(), HasSubstr("recv #2 (activations)"),
                       HasSubstr("rank 0 had no answer within 2000 ms")));
  expect_nothing_left(devices);
}

// NCCL's abort may wait for ever, for ranks that have gone.
TEST(Nccl, AnAbortThatHangsKeepsNobody) {
  FakeDevices devices(7, FakeDevices::Caller::stream);
  std::promise<void> opened;
  const auto open = opened.get_future().share();
  std::vector<std::string> messages(2);
  const auto make = [&](const std::shared_ptr<StoreClient>& store, int rank) {
    auto device = devices.device(rank);
    auto nccl = std::make_shared<NcclApi>(*device.nccl);
    nccl->comm_abort = [open, abort = nccl->comm_abort](NcclComm comm) {
      open.wait();
      return abort(comm);
    };
    device.nccl = nccl;
    NcclOptions options;
    options.ending_timeout = milliseconds(rank == 0 ? 100 : 10'000);
    return make_nccl_communicator(device, store, "test", rank, 2, options);
  };
  const auto body = [&](Communicator& comm) {
    comm.barrier();
    auto& message = messages[static_cast<size_t>(comm.rank())];
    if (comm.rank() == 0) {
      const auto work = comm.all_reduce(at::zeros({3}));
      message = error_of<CommError>([&] { work->wait(milliseconds(50)); });
    }
  };
  run_joining_ranks(2, body, make);
  EXPECT_THAT(messages[0], HasSubstr("all_reduce #2 failed: rank 0 had no answer"));
  EXPECT_EQ(devices.num_aborted(), 0);
  opened.set_value();
  for (int i = 0; i < 20'000 && devices.num_aborted() == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(devices.num_aborted(), 1);
  EXPECT_THAT(devices.misuse(), IsEmpty());
}

TEST(Nccl, ALibraryThatIsMissingOrTooOldIsRefused) {
  EXPECT_THAT(
      error_of<ConfigError>([] { load_nccl("libnccl-of-nobody.so.2"); }),
      AllOf(
          one_line(), HasSubstr("needs NCCL 2.18 or newer"),
          HasSubstr("libnccl-of-nobody.so.2: cannot open"),
          HasSubstr("install NVIDIA's libnccl2")));
  EXPECT_THAT(
      error_of<ConfigError>([] { load_nccl(binary_dir() + "/tests/libold_nccl.so"); }),
      AllOf(one_line(), HasSubstr("libold_nccl.so is 2.17.1;")));
}

TEST(Nccl, TheLibraryOfThisMachineIsLoadedWithAllThatIsUsed) {
  std::shared_ptr<const NcclApi> nccl;
  try {
    nccl = load_nccl();
  } catch (const ConfigError& error) {
    GTEST_SKIP() << error.what() << ": scripts/test -R Nccl";
  }
  int version = 0;
  ASSERT_EQ(nccl->get_version(&version), NcclResult::success);
  EXPECT_GE(version, 21800);
  NcclUniqueId ids[2] = {};
  for (auto& id : ids) {
    ASSERT_EQ(nccl->get_unique_id(&id), NcclResult::success);
  }
  EXPECT_NE(std::string(ids[0].bytes, 128), std::string(ids[1].bytes, 128));
  EXPECT_STREQ(nccl->get_error_string(NcclResult::success), "no error");
}

}  // namespace tandem::nccl_test
