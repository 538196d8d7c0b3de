// The communicator over ProcessGroupNCCL, with Gloo groups in its place, and the choice
// of NCCL.

#include "tandem/comm/cuda/nccl.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::nccl_test {

using testing::Each;

// Returns the obstacles of 4 ranks with these devices and missing libraries.
std::vector<std::string> obstacles(
    const std::vector<std::string>& devices, const std::vector<std::string>& missing) {
  return on_each_rank("thread", 4, [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    return nccl_obstacle(comm, devices[rank], missing[rank]);
  });
}

TEST(NcclChoice, NeedsADeviceForEachRank) {
  const std::vector<std::string> all = {"a 1", "a 2", "b 1", "b 2"};
  EXPECT_THAT(obstacles(all, {"", "", "", ""}), Each(""));
  EXPECT_THAT(
      obstacles({"a 1", "a 2", "b 1", "a 2"}, {"", "", "", ""}),
      Each("ranks 1 and 3 share a device"));
}

TEST(NcclChoice, NeedsTheLibraryOnAllRanks) {
  EXPECT_THAT(
      obstacles({"a 1", "a 2", "b 1", "b 2"}, {"", "", "no libnccl.so.2", ""}),
      Each("no libnccl.so.2"));
}

// LibTorch 1.13's Gloo lacks two operations of NCCL.
class GlooGroup : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::AllgatherOptions& options) override {
    std::vector<std::vector<at::Tensor>> outputs{output.chunk(getSize())};
    std::vector<at::Tensor> inputs{input};
    return allgather(outputs, inputs, options);
  }

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions&) override {
    std::vector<at::Tensor> sum{input.clone()};
    auto work = allreduce(sum);
    work->wait();
    output.copy_(sum[0].chunk(getSize())[getRank()]);
    return work;
  }
};

c10::intrusive_ptr<c10d::TANDEM_C10D_GROUP> make_gloo(
    c10::intrusive_ptr<c10d::Store> store, int rank, int size,
    std::chrono::milliseconds timeout) {
  const auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->timeout = timeout;
  options->threads = 1;
  return c10::make_intrusive<GlooGroup>(store, rank, size, options);
}

void run_ranks_over(
    int size, const std::function<void(Communicator&)>& body,
    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  CudaLibrary library{};
  library.make_nccl = &make_gloo;
  run_joining_ranks(size, body, [&](auto store, int rank) {
    return make_nccl_communicator(
        library, at::kCPU, store, "test", rank, size, timeout);
  });
}

TEST(NcclCommunicator, ReducesAndBroadcasts) {
  run_ranks_over(3, [](Communicator& comm) {
    auto sum = at::full({5}, comm.rank() + 1, at::kFloat);
    comm.all_reduce(sum)->wait();
    EXPECT_TRUE(sum.equal(at::full({5}, 6, at::kFloat)));
    auto any = at::full({2}, comm.rank() == 1, at::kBool);
    comm.all_reduce(any, ReduceOp::max)->wait_on_host();
    EXPECT_TRUE(any.equal(at::full({2}, true)));
    auto least = at::full({1}, comm.rank() + 4, at::kLong);
    comm.all_reduce(least, ReduceOp::min)->wait(std::chrono::seconds(10));
    EXPECT_EQ(least.item<int64_t>(), 4);
    auto text = at::full({3}, comm.rank(), at::kInt);
    comm.broadcast(text, 2)->wait();
    EXPECT_TRUE(text.equal(at::full({3}, 2, at::kInt)));
  });
}

TEST(NcclCommunicator, GathersAndScatters) {
  run_ranks_over(3, [](Communicator& comm) {
    const auto mine = at::full({2}, comm.rank(), at::kDouble);
    const auto whole = at::arange(3, at::kDouble).repeat_interleave(2);
    const bool root = comm.rank() == 1;
    auto all = at::zeros({6}, at::kDouble);
    comm.all_gather(all, mine)->wait();
    EXPECT_TRUE(all.equal(whole));
    auto gathered = root ? at::zeros({6}, at::kDouble) : at::Tensor();
    comm.gather(gathered, mine, 1)->wait();
    EXPECT_TRUE(!root || gathered.equal(whole));
    auto sum = at::zeros({2}, at::kDouble);
    comm.reduce_scatter(sum, whole)->wait();
    EXPECT_TRUE(sum.equal(3 * mine));
    auto part = at::zeros({2}, at::kDouble);
    comm.scatter(part, root ? whole : at::Tensor(), 1)->wait();
    EXPECT_TRUE(part.equal(mine));
  });
}

TEST(NcclCommunicator, RanksSendToEachOtherConcurrently) {
  run_ranks_over(3, [](Communicator& comm) {
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> sent;
    std::vector<at::Tensor> received;
    std::vector<int64_t> expected;
    for (int peer = 0; peer < comm.size(); ++peer) {
      for (int number = 0; peer != comm.rank() && number < 2; ++number) {
        sent.push_back(at::full({1}, 10 * comm.rank() + number, at::kLong));
        works.push_back(comm.send(sent.back(), peer, 0));
      }
    }
    for (int peer = 0; peer < comm.size(); ++peer) {
      for (int number = 0; peer != comm.rank() && number < 2; ++number) {
        received.push_back(at::zeros({1}, at::kLong));
        expected.push_back(10 * peer + number);
        works.push_back(comm.recv(received.back(), peer, 0));
      }
    }
    for (const auto& work : works) {
      work->wait();
    }
    for (size_t i = 0; i < received.size(); ++i) {
      EXPECT_EQ(received[i].item<int64_t>(), expected[i]);
    }
  });
}

TEST(NcclCommunicator, SplitsIntoGroups) {
  run_ranks_over(4, [](Communicator& comm) {
    const auto half = comm.split(comm.rank() % 2);
    ASSERT_EQ(half->size(), 2);
    auto sum = at::full({1}, comm.rank(), at::kLong);
    half->all_reduce(sum)->wait();
    EXPECT_EQ(sum.item<int64_t>(), comm.rank() % 2 == 0 ? 2 : 4);
    EXPECT_EQ(comm.split(comm.rank())->size(), 1);
  });
}

// ProcessGroupNCCL throws in wait(), or in a later call.
TEST(NcclCommunicator, AMissingRankTimesOut) {
  run_ranks_over(
      2,
      [](Communicator& comm) {
        if (comm.rank() == 1) {
          return;
        }
        const auto work = comm.all_reduce(at::zeros({3}), ReduceOp::sum, "bucket 4");
        expect_error<CommError>(
            [&] { work->wait_on_host(); }, {"all_reduce", "bucket 4"});
        EXPECT_NE(
            error_of<CommError>([&] { comm.all_reduce(at::zeros({3}))->wait(); }), "");
      },
      std::chrono::seconds(2));
}

}  // namespace tandem::nccl_test
