#include "tandem/parallel/ddp/distributed_data_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::distributed_data_parallel_test {

using testing::Each;
using testing::HasSubstr;

// A model of a custom loop, without torch::nn.
struct OwnModel {
  at::Tensor weight = at::arange(6, at::kDouble).view({3, 2}).set_requires_grad(true);
  at::Tensor bias = at::zeros({2}, at::kDouble).set_requires_grad(true);
  at::Tensor unused = at::zeros({5}, at::kDouble).set_requires_grad(true);
  at::Tensor count = at::zeros({}, at::kLong);

  std::vector<NamedTensor> parameters() const {
    return {{"weight", weight}, {"bias", bias}, {"unused", unused}};
  }
  std::vector<NamedTensor> buffers() const {
    return {{"count", count}};
  }
  // The gradient of `weight` is x, that of `bias` is 1.
  void backward(double x) const {
    const auto input = at::full({1, 3}, x, at::kDouble);
    (input.matmul(weight) + bias).sum().backward();
  }
};

DistributedDataParallelOptions small_buckets() {
  DistributedDataParallelOptions options;
  options.bucket_bytes = 1;
  return options;
}

TEST(DistributedDataParallel, BackwardAveragesGradientsOverRanks) {
  for (int size = 1; size <= 4; ++size) {
    const auto gradients = on_each_rank("thread", size, [](Communicator& comm) {
      OwnModel model;
      DistributedDataParallel ddp(
          model.parameters(), model.buffers(), comm, small_buckets());
      model.backward(1 << comm.rank());
      TANDEM_CHECK(
          model.unused.grad().eq(0).all().item<bool>(), "unused has a gradient");
      TANDEM_CHECK(model.bias.grad().eq(1).all().item<bool>(), "not the mean");
      return model.weight.grad().clone();
    });
    const double mean = ((1 << size) - 1) / static_cast<double>(size);
    for (const auto& gradient : gradients) {
      EXPECT_TRUE(gradient.equal(at::full({3, 2}, mean, at::kDouble))) << size;
    }
  }
}

TEST(DistributedDataParallel, StartsWithParametersAndBuffersOfRank0) {
  const auto sums = on_each_rank("thread", 3, [](Communicator& comm) {
    OwnModel model;
    model.weight.detach().add_(comm.rank());
    model.count.fill_(5 + comm.rank());
    DistributedDataParallel ddp(model.parameters(), model.buffers(), comm);
    return model.weight.sum().item<double>() + 100 * model.count.item<double>();
  });
  EXPECT_THAT(sums, Each(515));
}

TEST(DistributedDataParallel, NoSyncKeepsGradientsLocalUntilTheNextReduction) {
  const auto gradients = on_each_rank("thread", 2, [](Communicator& comm) {
    OwnModel model;
    DistributedDataParallel ddp(
        model.parameters(), model.buffers(), comm, small_buckets());
    const double mine = comm.rank() == 0 ? 1 : 10;
    std::vector<double> seen;
    {
      const auto scope = ddp.no_sync();
      // The end of a nested scope does not end the outer scope.
      { const auto inner = ddp.no_sync(); }
      model.backward(mine);
      seen.push_back(model.weight.grad()[0][0].item<double>());
    }
    model.backward(mine * 3);
    seen.push_back(model.weight.grad()[0][0].item<double>());
    return seen;
  });
  EXPECT_EQ(gradients[0], (std::vector<double>{1, 22}));
  EXPECT_EQ(gradients[1], (std::vector<double>{10, 22}));
}

TEST(DistributedDataParallel, GradientsMayBeZeroedOrUnsetBetweenSteps) {
  for (const bool unset : {false, true}) {
    const auto gradients = on_each_rank("thread", 2, [&](Communicator& comm) {
      OwnModel model;
      DistributedDataParallel ddp(
          model.parameters(), model.buffers(), comm, small_buckets());
      std::vector<double> seen;
      for (const double x : {1.0, 5.0}) {
        for (auto& tensor : {model.weight, model.bias, model.unused}) {
          if (unset) {
            at::Tensor(tensor).mutable_grad() = at::Tensor();
          } else {
            tensor.grad().zero_();
          }
        }
        model.backward(x + comm.rank());
        seen.push_back(model.weight.grad()[2][1].item<double>());
        seen.push_back(model.bias.grad()[1].item<double>());
        ddp.arenas().check_attached();
      }
      return seen;
    });
    EXPECT_THAT(gradients, Each(std::vector<double>{1.5, 1, 5.5, 1})) << unset;
  }
}

TEST(DistributedDataParallel, BackwardWithCreateGraphReducesOnlyValues) {
  const auto gradients = on_each_rank("thread", 3, [](Communicator& comm) {
    OwnModel model;
    DistributedDataParallel ddp(
        model.parameters(), model.buffers(), comm, small_buckets());
    const auto input = at::full({1, 3}, comm.rank(), at::kDouble);
    const auto loss = (input.matmul(model.weight) + model.bias).square().sum();
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    ddp.arenas().check_attached();
    TANDEM_CHECK(!model.weight.grad().requires_grad(), "the gradient has a graph");
    return model.weight.grad().clone();
  });
  // The gradient is 2 * sum(x * weight) * x for x = 0, 1, 2.
  const auto sums = at::arange(6, at::kDouble).view({3, 2}).sum(0);
  const auto mean = (sums * (2 + 8) / 3).expand({3, 2});
  for (const auto& gradient : gradients) {
    EXPECT_TRUE(gradient.allclose(mean, 1e-15, 0));
  }
}

TEST(DistributedDataParallel, SyncBuffersWorksBetweenForwards) {
  for (const auto how : {BufferSync::broadcast, BufferSync::average, BufferSync::off}) {
    const auto seen = on_each_rank("thread", 4, [&](Communicator& comm) {
      OwnModel model;
      auto mean = at::zeros({2}, at::kDouble);
      DistributedDataParallelOptions options;
      options.buffers = how;
      const std::vector<NamedTensor> buffers = {{"mean", mean}, {"count", model.count}};
      DistributedDataParallel ddp(model.parameters(), buffers, comm, options);
      mean.fill_(1 + comm.rank());
      model.count.fill_(5 + comm.rank());
      ddp.sync_buffers();
      return std::vector<double>{mean[1].item<double>(), model.count.item<double>()};
    });
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<double> expected =
          how == BufferSync::broadcast ? std::vector<double>{1, 5}
          : how == BufferSync::average ? std::vector<double>{2.5, 5.0 + rank}
                                       : std::vector<double>{1.0 + rank, 5.0 + rank};
      EXPECT_EQ(seen[static_cast<size_t>(rank)], expected);
    }
  }
}

TEST(DistributedDataParallel, BucketHookGetsEachBucketInOrder) {
  const auto seen = on_each_rank("thread", 3, [](Communicator& comm) {
    OwnModel model;
    std::string text;
    auto options = small_buckets();
    options.bucket_hook = [&](Communicator& group, const GradBucket& bucket) {
      text += std::to_string(bucket.index) + (bucket.is_last ? "!" : "");
      for (const auto& [name, gradient] : bucket.gradients) {
        TANDEM_CHECK(gradient.is_alias_of(bucket.flat), "not a view");
        text += " " + name + " " + std::to_string(gradient.numel());
      }
      text += ", ";
      auto work = group.all_reduce(bucket.flat, ReduceOp::max);
      return [&text, work] {
        work->wait();
        text += "arrived ";
      };
    };
    DistributedDataParallel ddp(model.parameters(), model.buffers(), comm, options);
    model.backward(1 + comm.rank());
    return text + std::to_string(model.weight.grad()[0][0].item<int>());
  });
  EXPECT_THAT(
      seen, Each("0 unused 5, 1 bias 2, 2! weight 6, arrived arrived arrived 3"));
}

// A model with two parameters, whose gradients arrive in the order bias, weight.
struct TwoParameters {
  explicit TwoParameters(Communicator& comm, int64_t bucket_bytes)
      : ddp({{"weight", weight}, {"bias", bias}}, {}, comm, options(bucket_bytes)) {}

  static DistributedDataParallelOptions options(int64_t bucket_bytes) {
    DistributedDataParallelOptions chosen;
    chosen.bucket_bytes = bucket_bytes;
    return chosen;
  }

  std::string backward(double x, bool throws) {
    const auto product = at::full({1, 3}, x, at::kDouble).matmul(weight);
    // Called after the gradient of `bias` and before that of `weight`.
    product.register_hook([throws](const at::Tensor&) {
      if (throws) {
        throw DataError("in the middle");
      }
    });
    const auto outputs = product + bias;
    return error_of<Error>([&] { outputs.sum().backward(); });
  }

  at::Tensor weight = at::zeros({3, 2}, at::kDouble).set_requires_grad(true);
  at::Tensor bias = at::zeros({2}, at::kDouble).set_requires_grad(true);
  DistributedDataParallel ddp;
};

TEST(DistributedDataParallel, BackwardWorksAfterAThrowBeforeTheFirstBucket) {
  const auto gradients = on_each_rank("thread", 3, [](Communicator& comm) {
    TwoParameters model(comm, 1024);
    // Only one rank throws; the others wait for its next backward.
    if (comm.rank() == 1) {
      TANDEM_CHECK(model.backward(5, true) == "in the middle", "did not throw");
      model.bias.grad().zero_();
    }
    TANDEM_CHECK(model.backward(1 + comm.rank(), false) == "(no error)", "threw");
    return std::vector<double>{
        model.weight.grad()[0][0].item<double>(), model.bias.grad()[0].item<double>()};
  });
  EXPECT_THAT(gradients, Each(std::vector<double>{2, 1}));
}

TEST(DistributedDataParallel, BackwardThrowsAfterAThrowWithSentBuckets) {
  const auto messages = on_each_rank("thread", 3, [](Communicator& comm) {
    TwoParameters model(comm, 1);
    TANDEM_CHECK(model.backward(1, true) == "in the middle", "did not throw");
    return model.backward(1, false);
  });
  EXPECT_THAT(messages, Each(HasSubstr("1 of 2 buckets had been sent")));
}

TEST(DistributedDataParallel, FewerBackwardsOnOneRankAreAnErrorOnTheOthers) {
  expect_error<CommError>(
      [] {
        run_ranks(
            3,
            [](Communicator& comm) {
              OwnModel model;
              DistributedDataParallel ddp(model.parameters(), model.buffers(), comm);
              model.backward(1);
              if (comm.rank() != 2) {
                model.backward(1);
              }
            },
            std::chrono::milliseconds(300));
      },
      {"bucket 0"});
}

TEST(DistributedDataParallel, WarnsOnceOfUnusedParameters) {
  testing::internal::CaptureStderr();
  run_ranks(3, [](Communicator& comm) {
    OwnModel model;
    auto parameters = model.parameters();
    // A process prints each warning once, and earlier tests have warned of "unused".
    parameters.back().name = "left_out";
    DistributedDataParallel ddp(parameters, model.buffers(), comm);
    model.backward(1);
    model.backward(1);
  });
  const auto text = testing::internal::GetCapturedStderr();
  const size_t first = text.find("does not depend on left_out;");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("does not depend", first + 1), std::string::npos) << text;
}

TEST(DistributedDataParallel, RejectsInvalidOptions) {
  const auto refused = [](const DistributedDataParallelOptions& options, bool frozen) {
    const auto comm = make_single_communicator();
    OwnModel model;
    auto parameters = model.parameters();
    for (auto& entry : parameters) {
      entry.tensor.set_requires_grad(!frozen);
    }
    return error_of<ConfigError>([&] {
      const DistributedDataParallel ddp(parameters, model.buffers(), *comm, options);
    });
  };
  DistributedDataParallelOptions options;
  EXPECT_THAT(refused(options, true), HasSubstr("none of the 3 parameters is"));
  options.buffers = BufferSync::sync;
  EXPECT_THAT(refused(options, false), HasSubstr("expected broadcast, average or off"));
  options.buffers = BufferSync::off;
  options.comm_hook = CommHook::bf16;
  options.bucket_hook = [](Communicator&, const GradBucket&) { return nullptr; };
  EXPECT_THAT(refused(options, false), HasSubstr("bucket_hook and comm_hook"));
}

TEST(DistributedDataParallel, DifferentModelsAreAnError) {
  const auto messages = on_each_rank("thread", 2, [](Communicator& comm) {
    OwnModel model;
    if (comm.rank() == 1) {
      model.bias = at::zeros({3}, at::kDouble).set_requires_grad(true);
    }
    return error_of<ConfigError>(
        [&] { DistributedDataParallel(model.parameters(), model.buffers(), comm); });
  });
  EXPECT_THAT(messages, Each(HasSubstr("the models")));
}

}  // namespace tandem::distributed_data_parallel_test
