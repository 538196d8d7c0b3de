// Optimizer state, gradients and parameters divided among ranks (ZeRO stages 1 to 3).

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::sharding_test {

RunOptions options_of(OptimizerKind optimizer) {
  RunOptions options;
  options.optimizer = OptimizerOptions();
  options.optimizer.kind = optimizer;
  options.optimizer.momentum = optimizer == OptimizerKind::sgd ? 0.9 : 0;
  options.lr = 0.01;
  options.epochs = 1;
  return options;
}

constexpr Sharding kSharded[] = {
    Sharding::optimizer, Sharding::gradients, Sharding::parameters};

// Gloo sums gradients for all ranks in another order than for one rank.
bool sums_in_rank_order(const std::string& backend, int size) {
  return backend != "gloo" || size <= 2;
}

// Trains with each kind of sharding, and compares the parameters with those of
// replicated training.
void expect_the_bits_of_replicas(
    const std::string& backend, int size, RunOptions options) {
  SCOPED_TRACE(std::to_string(size) + " over " + backend);
  const auto train = [&](Communicator& comm) { return train_small_net(comm, options); };
  options.strategy.shard = Sharding::none;
  const auto replicated = on_each_rank(backend, size, train);
  for (const auto shard : kSharded) {
    SCOPED_TRACE(name_of(shard));
    options.strategy.shard = shard;
    for (const auto& rank : on_each_rank(backend, size, train)) {
      if (sums_in_rank_order(backend, size)) {
        EXPECT_EQ(rank.sha256, replicated[0].sha256);
      }
      EXPECT_LE(relative_difference(rank.parameters, replicated[0].parameters), 1e-10);
      EXPECT_NEAR(rank.gradient_norm / replicated[0].gradient_norm, 1, 1e-10);
    }
  }
}

TEST(Sharding, HasTheBitsOfReplicas) {
  for (const int size : {1, 2, 3, 4}) {
    for (const char* backend : {"thread", "shm", "gloo", "hierarchical"}) {
      RunOptions options = options_of(OptimizerKind::adam);
      options.strategy.clip_norm = size % 2 == 0 ? 0.5 : 0;
      expect_the_bits_of_replicas(backend, size, options);
    }
  }
}

TEST(Sharding, HasTheBitsOfReplicasWithEachOptimizer) {
  for (const auto& row : Choices<OptimizerKind>::rows) {
    if (!row.needs_whole_tensors) {
      SCOPED_TRACE(row.name);
      expect_the_bits_of_replicas("thread", 3, options_of(row.value));
    }
  }
}

// Automatic sharding is for `tandem train`; here it means none.
TEST(Sharding, RanksHaveEqualBitsWithOptimizersThatNeedWholeTensors) {
  for (const auto& row : Choices<OptimizerKind>::rows) {
    if (row.needs_whole_tensors) {
      SCOPED_TRACE(row.name);
      const auto options = options_of(row.value);
      const auto ranks = on_each_rank("thread", 3, [&](Communicator& comm) {
        return train_small_net(comm, options);
      });
      for (const auto& rank : ranks) {
        EXPECT_EQ(rank.sha256, ranks[0].sha256);
      }
      const auto alone = on_each_rank("thread", 1, [&](Communicator& comm) {
        return train_small_net(comm, options);
      });
      EXPECT_LE(relative_difference(ranks[0].parameters, alone[0].parameters), 1e-8);
    }
  }
}

TEST(Sharding, HasTheBitsOfReplicasWithSeveralMicroBatchesAndUnevenRanks) {
  for (const auto sync : {SyncMode::parameter, SyncMode::flat, SyncMode::overlap}) {
    SCOPED_TRACE(name_of(sync));
    RunOptions options = options_of(OptimizerKind::adam);
    options.epochs = 2;
    options.strategy.sync = sync;
    options.micro_batches = 2;
    // In the last step, the last ranks have fewer micro-batches or none.
    options.data_size = 26;
    options.tail = Tail::keep;
    expect_the_bits_of_replicas("shm", 3, options);
    expect_the_bits_of_replicas("thread", 4, options);
  }
}

TEST(Sharding, HasTheBitsOfReplicasWithTheHookAndTheScaler) {
  RunOptions options = options_of(OptimizerKind::adamw);
  options.scaled = true;
  options.strategy.clip_norm = 0.5;
  for (const auto hook : {CommHook::none, CommHook::bf16, CommHook::fp16}) {
    SCOPED_TRACE(name_of(hook));
    options.strategy.comm_hook = hook;
    expect_the_bits_of_replicas("shm", 3, options);
    expect_the_bits_of_replicas("thread", 4, options);
  }
}

// Groups of ranks that divide values, and are replicas of each other.
TEST(Sharding, GroupsHaveTheResultsOfReplicas) {
  struct Shape {
    int size;
    int64_t group;
  };
  for (const char* backend : {"thread", "shm", "gloo", "hierarchical"}) {
    for (const auto& [size, group] : {Shape{4, 2}, Shape{3, 3}, Shape{6, 3}}) {
      if (size != 4 && std::string(backend) == "gloo") {
        continue;
      }
      SCOPED_TRACE(
          std::to_string(size) + " in groups of " + std::to_string(group) + " over " +
          backend);
      RunOptions options = options_of(OptimizerKind::adam);
      options.strategy.clip_norm = 0.5;
      options.micro_batches = 2;
      options.data_size = 50;
      options.tail = Tail::keep;
      const auto train = [&](Communicator& comm) {
        return train_small_net(comm, options);
      };
      options.strategy.shard = Sharding::none;
      const auto replicated = on_each_rank(backend, size, train);
      options.strategy.shard_group = group;
      for (const auto shard : kSharded) {
        options.strategy.shard = shard;
        const auto sharded = on_each_rank(backend, size, train);
        for (const auto& rank : sharded) {
          EXPECT_EQ(rank.sha256, sharded[0].sha256) << name_of(shard);
          EXPECT_LE(
              relative_difference(rank.parameters, replicated[0].parameters), 1e-12)
              << name_of(shard);
        }
      }
    }
  }
}

TEST(Sharding, RejectsGroupsThatDoNotDivideTheRanks) {
  const auto refusal = [](int size, int64_t group) {
    RunOptions options = options_of(OptimizerKind::sgd);
    options.strategy.shard = Sharding::gradients;
    options.strategy.shard_group = group;
    return error_of<ConfigError>([&] {
      run_backend(
          "thread", size, [&](Communicator& comm) { train_small_net(comm, options); });
    });
  };
  EXPECT_EQ(
      refusal(4, 3),
      "[parallel] shard_group is 3, expected a divisor of the 4 ranks; change "
      "--shard-group");
}

TEST(Sharding, ARankWithoutSamplesInTheFirstStepIsAnError) {
  RunOptions options = options_of(OptimizerKind::sgd);
  options.strategy.shard = Sharding::parameters;
  options.data_size = 2;
  options.tail = Tail::keep;
  expect_error<ConfigError>(
      [&] {
        run_backend(
            "thread", 3, [&](Communicator& comm) { train_small_net(comm, options); });
      },
      {"rank 2 has no sample in the first step", "--nproc"});
}

TEST(Sharding, PipelineReplicasHaveTheBitsOfReplicatedState) {
  struct Shape {
    int stages;
    int replicas;
  };
  for (const char* backend : {"thread", "shm", "gloo"}) {
    for (const auto& [stages, replicas] : {Shape{1, 3}, Shape{2, 2}, Shape{3, 1}}) {
      SCOPED_TRACE(
          std::to_string(stages) + " x " + std::to_string(replicas) + " over " +
          backend);
      RunOptions options = options_of(OptimizerKind::adam);
      options.strategy.kind = StrategyKind::pipeline;
      options.strategy.stages = stages;
      options.strategy.replicas = replicas;
      options.strategy.clip_norm = replicas == 2 ? 0.5 : 0;
      options.micro_batches = 2;
      const auto train = [&](Communicator& comm) {
        return train_small_net(comm, options);
      };
      const auto replicated = on_each_rank(backend, stages * replicas, train);
      for (const auto shard : {Sharding::optimizer, Sharding::gradients}) {
        options.strategy.shard = shard;
        const auto sharded = on_each_rank(backend, stages * replicas, train);
        for (size_t rank = 0; rank < sharded.size(); ++rank) {
          EXPECT_LE(
              relative_difference(
                  sharded[rank].parameters, replicated[rank].parameters),
              1e-10);
          if (sums_in_rank_order(backend, replicas)) {
            EXPECT_EQ(sharded[rank].sha256, replicated[rank].sha256) << rank;
          }
        }
      }
    }
  }
}

// A rank that makes steps on its own data.
struct Stepper {
  Communicator& comm;
  Replica replica;
  StepContext context = step_of(0.01);

  Stepper(Communicator& group, bool sharded, uint64_t seed = 1, bool scaled = false)
      : comm(group),
        replica(
            make_small_model(small_net_layers(), seed), comm, strategy(sharded),
            options_of(OptimizerKind::adam).optimizer, {LossKind::nll, Reduction::mean},
            scaled) {
    replica.strategy->start();
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i, ++context.step) {
      const auto batch = first_batch(6, comm.size(), comm.rank(), context.step);
      replica.strategy->train_step({batch}, context);
    }
  }

 private:
  static StrategyOptions strategy(bool sharded) {
    StrategyOptions options;
    options.shard = sharded ? Sharding::optimizer : Sharding::none;
    options.bucket_bytes = 2'000;
    return options;
  }
};

// Throws unless the optimizer has state only in this rank's parts.
void check_only_own_parts(Stepper& stepper) {
  Communicator& comm = stepper.comm;
  for (const Arena* arena : stepper.replica.optimizer->state()) {
    for (const auto& bucket : arena->layout().buckets()) {
      const int64_t part = bucket.range.size() / comm.size();
      auto others = arena->slice(bucket.range).clone();
      others.narrow(0, comm.rank() * part, part).zero_();
      TANDEM_CHECK(others.eq(0).all().item<bool>(), "has more than its share");
    }
  }
}

TEST(Sharding, TheSharesOfAllRanksAreTheStateOfOneReplica) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto counts = on_each_rank(backend, 3, [](Communicator& comm) {
      Stepper sharded(comm, true);
      Stepper replicated(comm, false);
      sharded.steps(2);
      replicated.steps(2);
      check_only_own_parts(sharded);
      const auto whole =
          local_state(replicated.replica.arenas, *replicated.replica.optimizer);
      int64_t count = 0;
      sharded.replica.strategy->visit_state([&](const TrainingState& piece) {
        for (const auto& [name, tensor] : piece.optimizer) {
          for (const auto& entry : whole.optimizer) {
            if (entry.name == name) {
              // Gloo sums in another order for owners.
              TANDEM_CHECK(tensor.allclose(entry.tensor, 1e-12, 1e-12), name);
              ++count;
            }
          }
        }
        TANDEM_CHECK(piece.model.empty() || comm.rank() == 0, "rank 0 has the model");
      });
      check_only_own_parts(sharded);
      return std::pair(count, static_cast<int64_t>(whole.optimizer.size()));
    });
    EXPECT_EQ(counts[0].first + counts[1].first + counts[2].first, counts[0].second);
    // Rank 0 has the model, so its share of the optimizer's state is smaller.
    EXPECT_LT(counts[0].first, counts[1].first);
    EXPECT_LT(counts[1].first, counts[1].second);
    EXPECT_GT(counts[2].first, 0);
  }
}

TEST(Sharding, LoadsOnlyThePartOfARank) {
  run_backend("shm", 2, [](Communicator& comm) {
    Stepper first(comm, true);
    Stepper replicated(comm, false);
    first.steps(2);
    replicated.steps(2);
    const auto whole =
        local_state(replicated.replica.arenas, *replicated.replica.optimizer);

    Stepper second(comm, true, 9);
    second.context.step = 2;
    const auto fresh = second.replica.strategy->state_to_load();
    const auto flat = [](const NamedTensor& entry, const StatePart& part) {
      return entry.tensor.detach().view(-1).slice(0, part.begin, part.end);
    };
    for (size_t i = 0; i < fresh.model.size(); ++i) {
      fresh.model[i].tensor.detach().copy_(whole.model[i].tensor);
    }
    for (size_t i = 0; i < fresh.optimizer.size(); ++i) {
      const auto& part = fresh.optimizer_parts.at(i);
      flat(fresh.optimizer[i], part).copy_(flat(whole.optimizer[i], part));
    }
    check_only_own_parts(second);
    second.replica.strategy->start();
    first.steps(2);
    second.steps(2);
    TANDEM_CHECK(
        second.replica.parameters().equal(first.replica.parameters()),
        "the resumed run differs");
  });
}

TEST(Sharding, ResyncRepairsParametersAndKeepsEveryRanksState) {
  run_backend("shm", 2, [](Communicator& comm) {
    Stepper good(comm, true);
    good.steps(4);
    Stepper repaired(comm, true);
    repaired.steps(2);
    if (comm.rank() == 1) {
      repaired.replica.model->parameters()[0].tensor.detach().fill_(7);
    }
    repaired.replica.strategy->resync();
    repaired.steps(2);
    TANDEM_CHECK(
        repaired.replica.parameters().equal(good.replica.parameters()),
        "the optimizer's state was lost");
  });
}

TEST(Sharding, RanksCannotDrift) {
  run_backend("shm", 2, [](Communicator& comm) {
    Stepper stepper(comm, true);
    stepper.steps(1);
    for (const auto& [name, tensor] : stepper.replica.model->parameters()) {
      tensor.detach().add_(comm.rank());
    }
    TANDEM_CHECK(!find_drift(comm, stepper.replica.arenas).ranks.empty(), "no drift");
    stepper.steps(1);
    TANDEM_CHECK(find_drift(comm, stepper.replica.arenas).ranks.empty(), "drift");
  });
}

TEST(Sharding, AllRanksGetTheLossScaleOfRank0) {
  run_backend("shm", 2, [](Communicator& comm) {
    Stepper stepper(comm, true, 1, true);
    auto& optimizer = *stepper.replica.optimizer;
    for (Arena* arena : optimizer.state()) {
      for (const auto& range : arena->layout().ranges()) {
        arena->slice(range).fill_(comm.rank() == 0 ? 2 : 3);
      }
    }
    stepper.replica.strategy->start();
    TANDEM_CHECK(optimizer.scaler()->scale() == 2, "the scale differs from rank 0's");
  });
}

TEST(Sharding, ArenasThatDoNotDivideAreAnError) {
  const auto make = [](Communicator& comm) {
    const auto model = make_small_model({flatten(), linear("a", 64, 5)});
    ModelArenas arenas(model->parameters(), model->buffers());
    const auto executor = make_eager_executor(*model, arenas, {});
    const auto optimizer = make_optimizer({}, arenas.parameters(), arenas.gradients());
    StrategyOptions options;
    options.shard = Sharding::optimizer;
    (void)make_strategy(options, {comm, *executor, arenas, *optimizer});
  };
  expect_error<ConfigError>([&] { run_backend("thread", 3, make); }, {"divisor"});
}

TEST(Sharding, RejectsStrategiesWithoutShardedState) {
  RunOptions options;
  options.strategy.kind = StrategyKind::averaging;
  options.strategy.shard = Sharding::optimizer;
  expect_error<ConfigError>(
      [&] {
        run_backend(
            "thread", 2, [&](Communicator& comm) { train_small_net(comm, options); });
      },
      {"shard is optimizer, which is for strategy sequential"});
}

TEST(Sharding, PipelinesDoNotShardParameters) {
  RunOptions options;
  options.strategy.kind = StrategyKind::pipeline;
  options.strategy.shard = Sharding::parameters;
  expect_error<ConfigError>(
      [&] {
        run_backend(
            "thread", 2, [&](Communicator& comm) { train_small_net(comm, options); });
      },
      {"--shard parameters is for strategy data_parallel", "--shard gradients"});
}

}  // namespace tandem::sharding_test
