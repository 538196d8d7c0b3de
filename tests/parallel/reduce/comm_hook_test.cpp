// Gradients sent as 16 bits: values, bytes, and results of training.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/parallel/ddp/distributed_data_parallel.h"
#include "tandem/parallel/reduce/grad_reducer.h"
#include "tests/comm/group.h"
#include "tests/parallel/replica.h"

namespace tandem::comm_hook_test {

struct Hook {
  const char* name;
  CommHook hook;
  at::ScalarType dtype;
};

const Hook kHooks[] = {
    {"fp16", CommHook::fp16, at::kHalf}, {"bf16", CommHook::bf16, at::kBFloat16}};

constexpr int64_t kCount = 1024;

// Small and large values that 16 bits cannot represent, different on each rank.
at::Tensor gradient_of(int rank, at::ScalarType dtype) {
  const auto index = at::arange(kCount, at::kDouble);
  return ((index * (0.37 + rank)).sin() * (index / 60 - 8).exp()).to(dtype);
}

struct Reduced {
  at::Tensor gradients;
  int64_t bytes;
};

std::vector<Reduced> reduce(
    const std::string& backend, int size, const WireFormat& wire,
    const std::function<at::Tensor(int)>& own) {
  return on_each_rank(backend, size, [&](Communicator& comm) {
    const auto mine = own(comm.rank());
    const auto half = mine.numel() / 2;
    Arena gradients(
        std::make_shared<ArenaLayout>(
            std::vector<NamedTensor>{
                {"a", mine.narrow(0, 0, half).clone().set_requires_grad(true)},
                {"b", mine.narrow(0, half, half).clone().set_requires_grad(true)}},
            std::vector<int64_t>{}, 1, c10::nullopt, 0),
        "gradients");
    gradients.view(0).copy_(mine.narrow(0, 0, half));
    gradients.view(1).copy_(mine.narrow(0, half, half));
    GradReducer reducer(comm, gradients, false, wire);
    const int64_t before = comm.stats().bytes;
    reducer.begin(nullptr);
    reducer.finish();
    return Reduced{
        at::cat({gradients.view(0), gradients.view(1)}), comm.stats().bytes - before};
  });
}

class CommHooks : public testing::TestWithParam<Hook> {};

INSTANTIATE_TEST_SUITE_P(
    Table, CommHooks, testing::ValuesIn(kHooks),
    [](const auto& row) { return std::string(row.param.name); });

TEST_P(CommHooks, ResultIsTheSumOfRoundedGradients) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto wire_dtype = GetParam().dtype;
    const auto expected = (gradient_of(0, dtype).to(wire_dtype).to(at::kDouble) +
                           gradient_of(1, dtype).to(wire_dtype).to(at::kDouble))
                              .to(wire_dtype)
                              .to(dtype);
    for (const std::string backend : {"thread", "shm", "gloo"}) {
      SCOPED_TRACE(backend);
      const auto ranks = reduce(backend, 2, {GetParam().hook}, [&](int rank) {
        return gradient_of(rank, dtype);
      });
      EXPECT_TRUE(ranks[0].gradients.equal(expected));
      EXPECT_TRUE(ranks[1].gradients.equal(expected));
      EXPECT_FALSE(expected.equal(gradient_of(0, dtype) + gradient_of(1, dtype)));
    }
  }
}

TEST_P(CommHooks, SendsTwoBytesPerGradient) {
  for (const std::string backend : {"thread", "shm", "gloo"}) {
    const auto own = [](int rank) { return gradient_of(rank, at::kFloat); };
    EXPECT_EQ(reduce(backend, 2, {}, own)[0].bytes, 4 * kCount);
    EXPECT_EQ(reduce(backend, 2, {GetParam().hook}, own)[0].bytes, 2 * kCount);
  }
}

TEST_P(CommHooks, AllRanksGetTheSameBits) {
  for (const std::string backend : {"thread", "shm", "gloo"}) {
    const auto ranks = reduce(backend, 4, {GetParam().hook}, [](int rank) {
      return gradient_of(rank, at::kFloat);
    });
    for (const auto& rank : ranks) {
      EXPECT_TRUE(rank.gradients.equal(ranks[0].gradients)) << backend;
    }
  }
}

TEST_P(CommHooks, OneRankDoesNotSendOrRound) {
  const auto own = [](int rank) { return gradient_of(rank, at::kFloat); };
  const auto alone = reduce("thread", 1, {GetParam().hook}, own);
  EXPECT_TRUE(alone[0].gradients.equal(own(0)));
  EXPECT_EQ(alone[0].bytes, 0);
}

TEST(CommHook, ScaleKeepsSumsOfManyRanksWithinFp16) {
  const auto own = [](int) { return at::full({2}, 60'000, at::kFloat); };
  const auto large = reduce("thread", 4, {CommHook::fp16}, own);
  EXPECT_FALSE(large[0].gradients.isfinite().any().item<bool>());
  const auto scaled = reduce("thread", 4, {CommHook::fp16, 0.25}, own);
  EXPECT_TRUE(scaled[0].gradients.equal(at::full({2}, 240'000, at::kFloat)));
}

TEST_P(CommHooks, ReplicasStayEqualAndNearTrainingWithoutAHook) {
  for (const auto reduction : {Reduction::mean, Reduction::sum}) {
    RunOptions options;
    options.loss.reduction = reduction;
    options.lr = reduction == Reduction::sum ? 0.05 / 24 : 0.05;
    const auto train = [&](const std::string& backend, int size) {
      return on_each_rank(backend, size, [&](Communicator& comm) {
        return train_small_net(comm, options);
      });
    };
    const auto exact = train("thread", 3);
    options.strategy.comm_hook = GetParam().hook;
    for (const std::string backend : {"thread", "shm", "gloo"}) {
      const auto ranks = train(backend, 3);
      EXPECT_EQ(ranks[1].sha256, ranks[0].sha256);
      EXPECT_EQ(ranks[2].sha256, ranks[0].sha256);
      const double off = relative_difference(ranks[0].parameters, exact[0].parameters);
      EXPECT_GT(off, 1e-7);
      EXPECT_LT(off, 0.02);
    }
  }
}

TEST_P(CommHooks, WorkInACustomLoop) {
  const auto gradients = on_each_rank("thread", 2, [](Communicator& comm) {
    auto weight = at::zeros({3}, at::kFloat).set_requires_grad(true);
    DistributedDataParallelOptions options;
    options.comm_hook = GetParam().hook;
    const std::vector<NamedTensor> parameters = {{"weight", weight}};
    DistributedDataParallel ddp(parameters, {}, comm, options);
    (weight * (comm.rank() == 0 ? 1.1 : 3.3)).sum().backward();
    return weight.grad().clone();
  });
  // As PyTorch's hooks: divide by 2, round, sum, round.
  const auto rounded = [](double value) {
    return at::full({3}, value, at::kFloat).to(GetParam().dtype);
  };
  const auto mean = (rounded(0.55) + rounded(1.65)).to(at::kFloat);
  EXPECT_TRUE(gradients[0].equal(mean));
  EXPECT_TRUE(gradients[1].equal(mean));
}

}  // namespace tandem::comm_hook_test
