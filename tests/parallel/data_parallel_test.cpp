// Data parallel training, except for data_parallel_identity_test.cpp.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/parallel/update/arena_update.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::data_parallel_test {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Returns a batch with different images on each rank.
Batch batch_of(const Communicator& comm) {
  return first_batch(6, comm.size(), comm.rank());
}

// Records the ranges passed to parameters_changed().
class ToldExecutor : public StageExecutor {
 public:
  explicit ToldExecutor(StageExecutor& inner) : inner_(inner) {}

  std::vector<std::pair<int64_t, int64_t>> told;

  StageResult forward(
      int slot, const Batch& batch, const StepContext& context) override {
    return inner_.forward(slot, batch, context);
  }
  at::Tensor backward(
      int slot, const at::Tensor& grad_output, const StepContext& context,
      GradientSink& sink) override {
    return inner_.backward(slot, grad_output, context, sink);
  }
  void parameters_changed(const ArenaRange& range) override {
    told.emplace_back(range.segment, range.size());
  }
  void zero_gradients() override {
    inner_.zero_gradients();
  }
  ExecutorKind kind() const override {
    return inner_.kind();
  }

 private:
  StageExecutor& inner_;
};

TEST(DataParallel, StartBroadcastsParametersAndBuffersOfRank0) {
  struct Seen {
    at::Tensor before;
    at::Tensor after;
    at::Tensor mean;
  };
  const auto ranks = on_each_rank("thread", 3, [](Communicator& comm) {
    const auto seed = static_cast<uint64_t>(comm.rank());
    Replica replica(make_small_model(batch_norm_layers(), seed), comm, {}, {});
    auto mean = replica.model->buffers()[0].tensor;
    mean.fill_(comm.rank() + 7);
    Seen seen{replica.parameters(), {}, mean};
    replica.strategy->start();
    seen.after = replica.parameters();
    return seen;
  });
  EXPECT_FALSE(ranks[1].before.equal(ranks[0].before));
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.after.equal(ranks[0].before));
    EXPECT_TRUE(rank.mean.eq(7).all().item<bool>());
  }
}

TEST(DataParallel, DifferentModelsOrPlansAreErrorsOnEveryRank) {
  const auto start = [](Communicator& comm, int64_t hidden, int64_t bucket_bytes) {
    StrategyOptions options;
    options.bucket_bytes = bucket_bytes;
    Replica replica(
        make_small_model({flatten(), linear("a", 64, hidden), linear("b", hidden, 5)}),
        comm, options, {});
    return error_of<ConfigError>([&] { replica.strategy->start(); });
  };
  const auto models = on_each_rank("thread", 3, [&](Communicator& comm) {
    return start(comm, comm.rank() == 2 ? 8 : 9, 1000);
  });
  EXPECT_THAT(models, Each(AllOf(HasSubstr("differ"), HasSubstr("rank 0 and rank 2"))));
  const auto plans = on_each_rank("thread", 2, [&](Communicator& comm) {
    return start(comm, 8, comm.rank() == 0 ? 1 << 20 : 100);
  });
  EXPECT_THAT(plans, Each(HasSubstr("differ")));
  const auto equal = on_each_rank(
      "thread", 2, [&](Communicator& comm) { return start(comm, 8, 100); });
  EXPECT_THAT(equal, Each("(no error)"));
}

// Running means of a rank after one step on its own data: local ones, and those for an
// evaluation.
struct Buffers {
  at::Tensor own;
  at::Tensor synced;
  int64_t count = 0;
};

std::vector<Buffers> buffers_after_a_step(BufferSync sync) {
  return on_each_rank("thread", 3, [&](Communicator& comm) {
    StrategyOptions options;
    options.buffers = sync;
    Replica replica(make_small_model(batch_norm_layers()), comm, options, {});
    replica.strategy->start();
    replica.strategy->train_step({batch_of(comm)}, step_of(0.1));
    const auto& buffers = replica.arenas.buffers();
    Buffers seen;
    seen.own = buffers.segment(0).clone();
    replica.strategy->before_evaluation();
    seen.synced = buffers.segment(0).clone();
    seen.count = replica.model->buffers()[2].tensor.item<int64_t>();
    return seen;
  });
}

TEST(DataParallel, BuffersAreBroadcastAveragedOrUnchangedBeforeEvaluation) {
  const auto broadcast = buffers_after_a_step(BufferSync::broadcast);
  EXPECT_FALSE(broadcast[1].own.equal(broadcast[0].own));
  EXPECT_FALSE(broadcast[2].own.equal(broadcast[1].own));
  const auto mean = (broadcast[0].own + broadcast[1].own + broadcast[2].own) / 3;
  const auto average = buffers_after_a_step(BufferSync::average);
  const auto off = buffers_after_a_step(BufferSync::off);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(broadcast[rank].synced.equal(broadcast[0].own)) << rank;
    EXPECT_TRUE(average[rank].synced.allclose(mean, 1e-13)) << rank;
    EXPECT_TRUE(average[rank].synced.equal(average[0].synced)) << rank;
    EXPECT_TRUE(off[rank].synced.equal(broadcast[rank].own)) << rank;
    for (const auto& ranks : {broadcast, average, off}) {
      EXPECT_EQ(ranks[rank].count, 1) << rank;
    }
  }
}

TEST(DataParallel, ClipNormLimitsOnlyLargerGradients) {
  struct Step {
    double norm;
    double length;
  };
  const auto take = [](double clip_norm) {
    const auto ranks = on_each_rank("thread", 2, [&](Communicator& comm) {
      StrategyOptions options;
      options.clip_norm = clip_norm;
      Replica replica(make_small_model(small_net_layers()), comm, options, {});
      replica.strategy->start();
      const auto before = replica.parameters();
      replica.strategy->train_step({batch_of(comm)}, step_of(1));
      return Step{
          own_gradient_norm(replica.arenas).item<double>(),
          (replica.parameters() - before).norm().item<double>()};
    });
    EXPECT_EQ(ranks[0].norm, ranks[1].norm);
    return ranks[0];
  };
  const Step free = take(0);
  ASSERT_GT(free.norm, 0.1);
  EXPECT_NEAR(free.length, free.norm, 1e-12);
  const Step clipped = take(free.norm / 4);
  EXPECT_EQ(clipped.norm, free.norm);
  EXPECT_NEAR(clipped.length, free.norm / 4, 1e-5 * free.norm);
  EXPECT_LE(clipped.length, free.norm / 4);
  EXPECT_EQ(take(free.norm * 2).length, free.length);
}

TEST(DataParallel, NonFiniteNormsScaleByOneOrZero) {
  const auto model = make_small_model({flatten(), linear("a", 64, 5)});
  ModelArenas arenas(model->parameters(), model->buffers());
  StrategyOptions options;
  options.clip_norm = 2;
  const auto scale_for = [&](double norm) {
    StepScalars step;
    clip(options, arenas, step, [&] { return at::full({}, norm, at::kDouble); });
    return step.gradient_scale;
  };
  EXPECT_EQ(scale_for(1), 1);
  EXPECT_EQ(scale_for(8), 2 / (8 + 1e-6));
  EXPECT_EQ(scale_for(std::nan("")), 1);
  EXPECT_EQ(scale_for(std::numeric_limits<double>::infinity()), 0);
}

TEST(DataParallel, UnusedParametersKeepTheirValueAndDoNotBlock) {
  const auto unused = on_each_rank("thread", 2, [](Communicator& comm) {
    auto used = at::zeros({3, 2}, at::kDouble).fill_(1).set_requires_grad(true);
    auto other = at::zeros({4}, at::kDouble).fill_(2).set_requires_grad(true);
    // Only rank 1 uses `other`.
    const bool second = comm.rank() == 1;
    auto model = make_function_model(
        [=](const at::Tensor& x) {
          const auto y = x.matmul(used);
          return second ? y + other.sum() : y;
        },
        {{"used", used},
         {"other", other},
         {"never", at::zeros({2}, at::kDouble).set_requires_grad(true)}});
    StrategyOptions options;
    options.bucket_bytes = 1;
    const Loss loss = {LossKind::mse, Reduction::sum};
    Replica replica(std::move(model), comm, options, {}, loss);
    replica.strategy->start();
    Batch batch;
    batch.inputs = at::zeros({1, 3}, at::kDouble).fill_(1);
    batch.targets = at::zeros({1, 2}, at::kDouble);
    batch.global_count = 2;
    replica.strategy->train_step({batch}, step_of(0.01));
    return std::vector<double>{
        other[0].item<double>(),
        replica.model->parameters()[2].tensor.sum().item<double>()};
  });
  // Only rank 1 has a gradient of `other`: that of sum((3 + 8)^2) is 2 * 11 * 2.
  EXPECT_THAT(unused[0], ElementsAre(testing::DoubleNear(2 - 0.44, 1e-14), 0));
  EXPECT_EQ(unused[0], unused[1]);
}

TEST(DataParallel, MeanSquaredErrorIsTheMeanOverElementsOfTheGlobalBatch) {
  const auto inputs = at::arange(12, at::kDouble).view({4, 3}) / 10;
  const auto targets = at::arange(8, at::kDouble).view({4, 2}).cos();
  const auto initial = at::arange(6, at::kDouble).view({3, 2}).sin();
  auto whole = initial.clone().set_requires_grad(true);
  at::mse_loss(inputs.matmul(whole), targets).backward();
  const auto expected = initial - whole.grad() * 0.5;
  const auto weights = on_each_rank("thread", 2, [&](Communicator& comm) {
    auto weight = initial.clone().set_requires_grad(true);
    StrategyOptions options;
    Replica replica(
        make_function_model(
            [weight](const at::Tensor& x) { return x.matmul(weight); },
            {{"weight", weight}}),
        comm, options, {}, {LossKind::mse, Reduction::mean});
    replica.strategy->start();
    Batch batch;
    // One rank has three samples, the other one.
    batch.inputs = comm.rank() == 0 ? inputs.narrow(0, 0, 3) : inputs.narrow(0, 3, 1);
    batch.targets =
        comm.rank() == 0 ? targets.narrow(0, 0, 3) : targets.narrow(0, 3, 1);
    batch.global_count = 4;
    replica.strategy->train_step({batch}, step_of(0.5));
    return weight.detach().clone();
  });
  EXPECT_TRUE(weights[0].allclose(expected, 1e-14));
  EXPECT_TRUE(weights[1].equal(weights[0]));
}

TEST(DataParallel, ExecutorIsNotifiedOfChangedParameters) {
  const auto comm = make_single_communicator();
  auto trained = at::zeros({3, 2}, at::kDouble).set_requires_grad(true);
  const auto frozen = at::zeros({2, 20}, at::kDouble);
  const auto model = make_function_model(
      [=](const at::Tensor& x) { return x.matmul(trained).matmul(frozen); },
      {{"trained", trained}, {"frozen", frozen}});
  ModelArenas arenas(model->parameters(), {});
  StrategyOptions options;
  const Loss loss = {LossKind::mse, Reduction::mean};
  const auto eager = make_eager_executor(*model, arenas, {loss, true, true});
  ToldExecutor executor(*eager);
  const auto optimizer = make_optimizer({}, arenas.parameters(), arenas.gradients());
  const auto strategy =
      make_strategy(options, {*comm, executor, arenas, *optimizer, loss});
  strategy->start();
  EXPECT_THAT(executor.told, ElementsAre(std::pair(0, 40), std::pair(1, 8)));
  executor.told.clear();
  Batch batch;
  batch.inputs = at::zeros({1, 3}, at::kDouble);
  batch.targets = at::zeros({1, 20}, at::kDouble);
  batch.global_count = 1;
  strategy->train_step({batch}, step_of(0.5));
  EXPECT_THAT(executor.told, ElementsAre(std::pair(1, 8)));
}

TEST(DataParallel, EvaluationCountsThisRanksSamplesAndChangesNothing) {
  const auto ranks = on_each_rank("thread", 2, [](Communicator& comm) {
    StrategyOptions options;
    Replica replica(make_small_model(batch_norm_layers()), comm, options, {});
    replica.strategy->start();
    const auto before = replica.arenas.parameters_sha256();
    StepContext context = step_of(1);
    context.training = false;
    const Batch batch = batch_of(comm);
    const auto sums = replica.strategy->evaluate_batch(&batch, context).values();
    TANDEM_CHECK(before == replica.arenas.parameters_sha256(), "parameters changed");
    TANDEM_CHECK(
        replica.model->buffers()[2].tensor.item<int64_t>() == 0, "buffers changed");
    return std::pair(sums.loss, sums.samples);
  });
  EXPECT_EQ(ranks[0].second, 6);
  EXPECT_EQ(ranks[1].second, 6);
  EXPECT_NE(ranks[0].first, ranks[1].first);
}

TEST(DataParallel, ReportsConsistencyShardAndStateNames) {
  const auto ranks = on_each_rank("thread", 3, [](Communicator& comm) {
    OptimizerOptions momentum;
    momentum.momentum = 0.9;
    Replica replica(make_small_model(batch_norm_layers()), comm, {}, momentum);
    TANDEM_CHECK(
        replica.strategy->consistency() == Consistency::replicated, "not replicated");
    TANDEM_CHECK(replica.strategy->rank_state().empty(), "has rank state");
    replica.strategy->start();
    const auto state = replica.strategy->collect_state();
    std::vector<std::string> names;
    for (const auto* list : {&state.model, &state.optimizer}) {
      for (const auto& entry : *list) {
        names.push_back(entry.name);
      }
    }
    const auto shard = replica.strategy->data_shard();
    names.push_back(
        std::to_string(shard.shard) + "/" + std::to_string(shard.num_shards));
    return names;
  });
  EXPECT_THAT(
      ranks[2],
      ElementsAre(
          "conv.weight", "conv.bias", "bn.weight", "bn.bias", "fc.weight", "fc.bias",
          "bn.running_mean", "bn.running_var", "bn.num_batches_tracked",
          "momentum_buffer/fc.bias", "momentum_buffer/fc.weight",
          "momentum_buffer/bn.bias", "momentum_buffer/bn.weight",
          "momentum_buffer/conv.bias", "momentum_buffer/conv.weight", "2/3"));
  EXPECT_EQ(ranks[0].back(), "0/3");
}

TEST(Strategies, SequentialRejectsSeveralRanks) {
  StrategyOptions options;
  options.kind = StrategyKind::sequential;
  const auto messages = on_each_rank("thread", 2, [&](Communicator& comm) {
    return error_of<ConfigError>(
        [&] { Replica(make_small_model(small_net_layers()), comm, options, {}); });
  });
  EXPECT_THAT(messages, Each(AllOf(HasSubstr("one rank"), HasSubstr("has 2 ranks"))));
}

}  // namespace tandem::data_parallel_test
