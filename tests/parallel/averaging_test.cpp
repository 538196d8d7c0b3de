// Parameter averaging, except for averaging_identity_test.cpp.

#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/backends/thread.h"
#include "tests/comm/group.h"
#include "tests/parallel/replica.h"

namespace tandem::averaging_test {

StrategyOptions averaging(int64_t steps) {
  StrategyOptions options;
  options.kind = StrategyKind::averaging;
  options.average_every = steps;
  return options;
}

OptimizerOptions sgd() {
  OptimizerOptions options;
  options.momentum = 0.9;
  return options;
}

// A rank that trains on different images than other ranks.
struct Rank {
  Rank(Communicator& from, int64_t steps) : Rank(from, averaging(steps)) {}
  Rank(Communicator& from, const StrategyOptions& strategy)
      : comm(from),
        replica(make_small_model(batch_norm_layers()), from, strategy, sgd()) {
    replica.strategy->start();
    SamplerOptions sampler;
    sampler.num_shards = comm.size();
    sampler.shard = comm.rank();
    LoaderOptions options;
    options.batch_size = 5;
    options.num_buffers = 8;
    loader = std::make_unique<Loader>(noise_images(60), sampler, options);
    loader->seek(0);
    context.lr = 0.1;
  }

  void step(bool with_samples = true) {
    Batch batch;
    std::vector<Batch> batches;
    if (with_samples && loader->next(batch)) {
      batches.push_back(batch);
    }
    replica.strategy->train_step(batches, context);
    ++context.step;
  }

  // Parameters and running statistics.
  at::Tensor values() const {
    std::vector<at::Tensor> flat;
    for (const auto& entry : replica.arenas.state()) {
      flat.push_back(entry.tensor.detach().reshape(-1).to(at::kDouble));
    }
    return at::cat(flat).clone();
  }

  at::Tensor mean_of_all() {
    return comm.stack(values()).mean(0);
  }

  bool equal_on_all_ranks() {
    const auto all = comm.stack(values());
    for (int rank = 1; rank < comm.size(); ++rank) {
      if (!all[rank].equal(all[0])) {
        return false;
      }
    }
    return true;
  }

  Communicator& comm;
  Replica replica;
  std::unique_ptr<Loader> loader;
  StepContext context;
};

bool near(const at::Tensor& a, const at::Tensor& b) {
  return relative_difference(a, b) <= 1e-12;
}

TEST(Averaging, AveragesEveryFewStepsEvenIfARankHasNoSamples) {
  run_ranks(3, [](Communicator& comm) {
    Rank rank(comm, 2);
    rank.step();
    TANDEM_CHECK(!rank.equal_on_all_ranks(), "equal after one step");
    const auto before = rank.values();
    rank.step(comm.rank() != 1);
    TANDEM_CHECK(rank.equal_on_all_ranks(), "not equal after two");
    TANDEM_CHECK(!rank.values().equal(before), "rank without samples kept its own");
  });
}

StrategyOptions diloco(int64_t steps) {
  auto options = averaging(steps);
  options.outer_optimizer = OuterOptimizer::nesterov;
  options.outer_lr = 0.6;
  options.outer_momentum = 0.8;
  return options;
}

// Steps of torch::optim::SGD on the difference between the last result and each
// average.
TEST(Averaging, AnOuterOptimizerIsNesterovSgdOnTheAverages) {
  for (const char* backend : {"thread", "shm", "gloo"}) {
    for (const int size : {1, 2, 3}) {
      run_backend(backend, size, [](Communicator& comm) {
        Rank expected(comm, 2);
        Rank rank(comm, diloco(2));
        const auto range =
            rank.replica.arenas.parameters().layout().trainable_ranges()[0];
        const auto average = expected.replica.arenas.parameters().slice(range);
        const auto base = average.clone().requires_grad_();
        torch::optim::SGD outer(
            {base}, torch::optim::SGDOptions(0.6).momentum(0.8).nesterov(true));
        for (int round = 0; round < 3; ++round) {
          for (int step = 0; step < 2; ++step) {
            expected.step();
            rank.step();
          }
          base.mutable_grad() = base.detach() - average;
          outer.step();
          average.copy_(base.detach());
          TANDEM_CHECK(rank.equal_on_all_ranks(), "ranks differ");
          TANDEM_CHECK(near(rank.values(), expected.values()), "not Nesterov SGD");
        }
        // The epoch ends right after an average.
        const auto before = rank.values();
        rank.replica.strategy->end_epoch(true);
        TANDEM_CHECK(rank.values().equal(before), "a step without training");
      });
    }
  }
}

TEST(Averaging, RankWithoutSamplesKeepsItsValuesBetweenAverages) {
  run_ranks(2, [](Communicator& comm) {
    Rank rank(comm, -1);
    rank.step();
    const auto before = rank.values();
    rank.step(comm.rank() == 0);
    TANDEM_CHECK(rank.values().equal(before) == (comm.rank() == 1), "values");
  });
}

TEST(Averaging, AveragesAtTheEndOfTheRunAndOptionallyOfEpochs) {
  for (const int64_t steps : {-1, 0, 100}) {
    run_ranks(2, [&](Communicator& comm) {
      Rank rank(comm, steps);
      rank.step();
      const auto mean = rank.mean_of_all();
      rank.replica.strategy->end_epoch(false);
      TANDEM_CHECK(rank.equal_on_all_ranks() == (steps == 0), "after an epoch");
      rank.replica.strategy->end_epoch(true);
      TANDEM_CHECK(rank.equal_on_all_ranks(), "at the end");
      TANDEM_CHECK(near(rank.values(), mean), "not the mean");
    });
  }
}

// Ranks gather at rank 0, because the order of an all-reduce depends on the backend.
TEST(Averaging, FinalAverageSumsInRankOrderOnEveryBackend) {
  for (const std::string backend : all_backends()) {
    for (const int size : {3, 4}) {
      const auto found = on_each_rank(backend, size, [](Communicator& comm) {
        Rank rank(comm, -1);
        rank.step();
        const auto all = comm.stack(rank.values());
        auto mean = all[0].clone();
        for (int other = 1; other < comm.size(); ++other) {
          mean += all[other];
        }
        mean /= comm.size();
        rank.replica.strategy->end_epoch(true);
        return rank.values().equal(mean);
      });
      EXPECT_THAT(found, testing::Each(true)) << backend << " " << size;
    }
  }
}

TEST(Averaging, EvaluationsAndCheckpointsDoNotChangeTraining) {
  const auto train = [](Communicator& comm, bool look) {
    Rank rank(comm, 3);
    for (int i = 0; i < 5; ++i) {
      rank.step();
      if (look) {
        const auto mean = rank.mean_of_all();
        rank.replica.strategy->before_evaluation();
        TANDEM_CHECK(near(rank.values(), mean), "the evaluation does not use the mean");
        const auto state = rank.replica.strategy->collect_state();
        rank.replica.strategy->rank_state();
      }
    }
    rank.replica.strategy->end_epoch(true);
    return rank.values();
  };
  const auto looked =
      on_each_rank("thread", 2, [&](Communicator& comm) { return train(comm, true); });
  const auto not_looked =
      on_each_rank("thread", 2, [&](Communicator& comm) { return train(comm, false); });
  EXPECT_TRUE(looked[0].equal(not_looked[0]));
  EXPECT_TRUE(looked[1].equal(not_looked[1]));
}

TEST(Averaging, EqualParametersAreNotAveragedAgain) {
  // The mean of three equal numbers may differ from them.
  run_ranks(3, [](Communicator& comm) {
    Rank rank(comm, 1);
    rank.step();
    const auto average = rank.values();
    rank.replica.strategy->before_evaluation();
    TANDEM_CHECK(rank.values().equal(average), "changed");
  });
}

TEST(Averaging, ResumesFromEachRanksState) {
  run_ranks(2, [](Communicator& comm) {
    Rank whole(comm, -1);
    Rank resumed(comm, -1);
    whole.step();
    whole.step();
    whole.replica.strategy->collect_state();
    const auto saved = whole.replica.strategy->rank_state();
    const auto targets = resumed.replica.strategy->rank_state();
    TANDEM_CHECK(saved.size() == targets.size(), "numbers of tensors differ");
    for (size_t i = 0; i < saved.size(); ++i) {
      TANDEM_CHECK(saved[i].name == targets[i].name, "names differ");
      targets[i].tensor.detach().copy_(saved[i].tensor);
    }
    resumed.replica.strategy->rank_state_loaded();
    Batch batch;
    TANDEM_CHECK(resumed.loader->next(batch), "the loader has no batch");
    TANDEM_CHECK(resumed.loader->next(batch), "the loader has no batch");
    resumed.context.step = 2;
    whole.step();
    resumed.step();
    TANDEM_CHECK(resumed.values().equal(whole.values()), "values");
    TANDEM_CHECK(!resumed.equal_on_all_ranks(), "ranks are equal");
  });
}

TEST(Averaging, BuffersStayLocalIfOff) {
  run_ranks(2, [](Communicator& comm) {
    auto options = averaging(0);
    options.buffers = BufferSync::off;
    Replica replica(make_small_model(batch_norm_layers()), comm, options, sgd());
    replica.strategy->start();
    for (const auto& buffer : replica.model->buffers()) {
      buffer.tensor.fill_(comm.rank());
    }
    replica.strategy->train_step({}, StepContext());
    replica.strategy->end_epoch(true);
    for (const auto& buffer : replica.model->buffers()) {
      TANDEM_CHECK(buffer.tensor.eq(comm.rank()).all().item<bool>(), buffer.name);
    }
  });
}

}  // namespace tandem::averaging_test
