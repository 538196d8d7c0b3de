// Behavior of ranks over shared memory only. The threads here have separate mappings,
// as processes do; tests/program/ranks/shm_test.cpp tests real processes.

#include "tandem/comm/shm/shm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/store/greeting.h"
#include "tandem/base/store/store.h"
#include "tandem/comm/shm/region.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::shm_test {

using std::chrono::milliseconds;
using testing::HasSubstr;

at::Tensor in_buffer(Communicator& comm, const at::Tensor& values) {
  auto buffer = comm.make_buffer(values.numel(), values.scalar_type());
  buffer.copy_(values);
  return buffer;
}

// Around the sizes of an announcement's payload, one chunk, and several.
constexpr int64_t kCounts[] = {1, 2054, 2055, 9000, 32768, 70'001, 300'007};

TEST(Shm, ReductionsHaveTheBitsOfThreadRanks) {
  for (const int size : {2, 3, 4}) {
    const auto reduced = [&](const std::string& backend, int shared_ranks) {
      return on_each_rank(backend, size, [&](Communicator& comm) {
        std::vector<at::Tensor> all;
        for (const auto dtype :
             {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt}) {
          for (const int64_t count : kCounts) {
            auto mine = wild_numbers(comm.rank(), count, dtype);
            mine = comm.rank() < shared_ranks ? in_buffer(comm, mine) : mine;
            comm.all_reduce(mine)->wait();
            all.push_back(mine);
          }
        }
        for (const auto op : {ReduceOp::min, ReduceOp::max}) {
          all.push_back(wild_numbers(comm.rank(), 70'001));
          comm.all_reduce(all.back(), op)->wait();
        }
        return all;
      });
    };
    const auto threads = reduced("thread", 0);
    for (const int shared_ranks : {0, 1, size}) {
      SCOPED_TRACE(
          std::to_string(shared_ranks) + " of " + std::to_string(size) + " shared");
      for (const auto& rank : reduced("shm", shared_ranks)) {
        for (size_t i = 0; i < rank.size(); ++i) {
          EXPECT_TRUE(same_bits(rank[i], threads[0][i])) << i;
        }
      }
    }
  }
}

TEST(Shm, ReducesPartsOfABuffer) {
  const auto ranks = on_each_rank("shm", 2, [](Communicator& comm) {
    auto buffer = comm.make_buffer(100'000, at::kFloat);
    buffer.fill_(comm.rank() + 1);
    comm.all_reduce(buffer.narrow(0, 3, 50'001))->wait();
    return buffer;
  });
  for (int rank : {0, 1}) {
    const auto& buffer = ranks[static_cast<size_t>(rank)];
    EXPECT_TRUE(buffer.narrow(0, 3, 50'001).eq(3).all().item<bool>());
    EXPECT_EQ(buffer.sum().item<double>(), 3 * 50'001 + (rank + 1) * 49'999.0);
  }
}

TEST(Shm, MovesTensorsLargerThanAChunk) {
  constexpr int64_t kCount = 100'003;
  constexpr int kSize = 3;
  const auto of = [](int rank) { return wild_numbers(rank, kCount); };
  on_each_rank("shm", kSize, [&](Communicator& comm) {
    const auto all = at::cat({of(0), of(1), of(2)});
    const auto own = [&](const at::Tensor& whole) {
      return whole.narrow(0, comm.rank() * kCount, kCount);
    };
    auto one = of(comm.rank());
    comm.broadcast(one, 1)->wait();
    TANDEM_CHECK(one.equal(of(1)), "broadcast");
    auto many = at::zeros({kSize * kCount});
    comm.all_gather(many, of(comm.rank()))->wait();
    TANDEM_CHECK(many.equal(all), "all_gather");
    auto shared = comm.make_buffer(kSize * kCount, at::kFloat);
    comm.all_gather(shared, of(comm.rank()))->wait();
    TANDEM_CHECK(shared.equal(all), "all_gather into buffers");
    shared.zero_();
    own(shared).copy_(of(comm.rank()));
    comm.all_gather(shared, own(shared))->wait();
    TANDEM_CHECK(shared.equal(all), "all_gather in place");
    auto mixed = comm.rank() == 1 ? at::zeros({kSize * kCount}) : shared.zero_();
    comm.all_gather(mixed, of(comm.rank()))->wait();
    TANDEM_CHECK(mixed.equal(all), "all_gather into some buffers");
    many.zero_();
    comm.gather(many, of(comm.rank()), 2)->wait();
    TANDEM_CHECK(comm.rank() != 2 || many.equal(all), "gather");
    comm.scatter(one, all * (comm.rank() == 2 ? 1 : 7), 2)->wait();
    TANDEM_CHECK(one.equal(own(all)), "scatter");
    comm.reduce_scatter(one, all * (comm.rank() + 1))->wait();
    TANDEM_CHECK(one.equal(own(all + all * 2 + all * 3)), "reduce_scatter");
    return 0;
  });
}

TEST(Shm, MoreOperationsThanAnnouncementsMayBeInFlight) {
  const auto ranks = on_each_rank("shm", 3, [](Communicator& comm) {
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 60; ++i) {
      auto values = wild_numbers(comm.rank(), i % 3 == 0 ? 50'000 : 5);
      tensors.push_back(i % 2 == 0 ? in_buffer(comm, values) : values);
      works.push_back(comm.all_reduce(tensors.back()));
    }
    while (!works.empty()) {
      works.back()->wait();
      works.pop_back();
    }
    return at::cat(tensors);
  });
  EXPECT_TRUE(same_bits(ranks[0], ranks[1]));
  EXPECT_TRUE(same_bits(ranks[0], ranks[2]));
  const auto sum = wild_numbers(0, 5) + wild_numbers(1, 5) + wild_numbers(2, 5);
  EXPECT_TRUE(same_bits(ranks[0].narrow(0, 50'000, 5), sum));
}

TEST(Shm, BuffersMayOutliveTheGroup) {
  const auto kept = on_each_rank("shm", 2, [](Communicator& comm) {
    std::vector<at::Tensor> many;
    for (int i = 0; i < 300; ++i) {
      // First more operations than places, then each in the place of the last.
      many.push_back(at::full({1}, 1));
      auto buffer = comm.make_buffer(3'000 + i, at::kFloat);
      buffer.fill_(i);
      comm.all_reduce(buffer)->wait();
      TANDEM_CHECK(buffer.eq(2 * i).all().item<bool>(), "another sum");
      if (i < 150) {
        many.back() = buffer;
      } else {
        many.clear();
      }
    }
    auto last = comm.make_buffer(5, at::kDouble);
    last.fill_(comm.rank());
    return last;
  });
  EXPECT_EQ(kept[0].sum().item<double>(), 0);
  EXPECT_EQ(kept[1].sum().item<double>(), 5);
}

TEST(Shm, LargeMessagesCrossEachOther) {
  // Larger than the ring between two ranks.
  constexpr int64_t kCount = 500'000;
  on_each_rank("shm", 2, [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    const auto mine = wild_numbers(comm.rank(), kCount);
    const auto first = comm.send(mine, peer, 1);
    const auto second = comm.send(mine * 2, peer, 2);
    // A message without a recv() does not block a collective.
    comm.barrier();
    auto got = at::zeros({kCount});
    comm.recv(got, peer, 2)->wait();
    TANDEM_CHECK(got.equal(wild_numbers(peer, kCount) * 2), "tag 2");
    comm.recv(got, peer, 1)->wait();
    TANDEM_CHECK(got.equal(wild_numbers(peer, kCount)), "tag 1");
    first->wait();
    second->wait();
    return 0;
  });
}

TEST(Shm, WaitingInOneGroupAdvancesAnother) {
  on_each_rank("shm", 4, [](Communicator& comm) {
    const auto pair = comm.split(comm.rank() / 2);
    auto message = at::full({500'000}, comm.rank());
    WorkPtr sent;
    if (pair->rank() == 0) {
      sent = pair->send(message, 1, 0);
    } else {
      pair->recv(message, 0, 0)->wait();
    }
    // The senders wait here for receivers that need bytes which are not yet in the
    // ring.
    comm.barrier();
    if (sent) {
      sent->wait();
    }
    TANDEM_CHECK(message[499'999].item<int>() == comm.rank() / 2 * 2, "other values");
    return 0;
  });
}

TEST(Shm, TimeoutNamesTheMissingRank) {
  std::string collective;
  std::string message;
  run_shm_ranks(
      3,
      [&](Communicator& comm) {
        auto x = at::zeros({1});
        if (comm.rank() == 0) {
          const auto work = comm.recv(x, 2, 0);
          message = error_of<CommError>([&] { work->wait(milliseconds(100)); });
          const auto all = comm.all_reduce(x);
          collective = error_of<CommError>([&] { all->wait(milliseconds(100)); });
          comm.send(x, 1, 0)->wait();
          comm.send(x, 2, 1)->wait();
        } else if (comm.rank() == 1) {
          const auto not_waited_for = comm.all_reduce(x);
          comm.recv(x, 0, 0)->wait();
        } else {
          comm.recv(x, 0, 1)->wait();
        }
      },
      milliseconds(100'000));
  expect_parts(collective, {"100 ms", "waited for rank 2"});
  expect_parts(message, {"100 ms", "waited for rank 2"});
}

// The run ends then: no rank continues without shared memory.
TEST(Shm, AnErrorOfTheStoreDoesNotFallBack) {
  const StoreServer server("tcp:127.0.0.1:0");
  const auto client =
      std::make_shared<StoreClient>(server.address(), milliseconds(60'000));
  client->greet(greeting_of(Greeting::Role::rank, 1, 2));
  auto twin = greeting_of(Greeting::Role::rank, 1, 2);
  twin.identity = "another process";
  StoreClient other(server.address(), milliseconds(60'000));
  EXPECT_THROW(other.greet(twin), ConfigError);
  // The answer of rank 0 to a rank that cannot use its region.
  other.set("test/shm/verdict", "rank 1 cannot use it");
  ShmOptions options;
  options.timeout = milliseconds(60'000);
  std::string why_not;
  expect_error<ConfigError>(
      [&] { try_shm_communicator(client, "test", 1, 2, options, why_not); },
      {"rank 1 has joined twice"});
}

TEST(ShmRegion, AttachChecksHostAndMemory) {
  const auto region = ShmRegion::create(2);
  const auto address = region->address();
  EXPECT_NO_THROW(ShmRegion::attach(address, 2));
  const auto error = [](const std::string& other, int size) {
    return error_of<ConfigError>([&] { ShmRegion::attach(other, size); });
  };
  expect_parts(error("elsewhere" + address, 2), {"one host", "--backend gloo"});
  EXPECT_THAT(error(address, 3), HasSubstr("cannot use rank 0's shared memory"));
  EXPECT_THAT(error(address + "1", 2), HasSubstr("cannot use rank 0's shared memory"));
  expect_parts(error(host_identity() + " 1 9999 5", 2), {"cannot open", "as one user"});
}

TEST(ShmRegion, AClosedFileMeansDeathUnlessTheRankLeft) {
  const auto region = ShmRegion::create(3);
  region->enter(0);
  auto other = ShmRegion::attach(region->address(), 3);
  EXPECT_FALSE(region->died(1));
  other->enter(1);
  EXPECT_FALSE(region->died(1));
  EXPECT_FALSE(other->died(0));
  other.reset();  // calls leave()
  EXPECT_FALSE(region->died(1));
  region->block(1).state = ShmRankBlock::attached;
  EXPECT_TRUE(region->died(1));
}

}  // namespace tandem::shm_test
