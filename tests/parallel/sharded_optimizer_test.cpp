// Optimizer state and updates divided among replicas (ZeRO stage 1).

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::sharded_optimizer_test {

RunOptions options_of(OptimizerKind optimizer) {
  RunOptions options;
  options.optimizer = OptimizerOptions();
  options.optimizer.kind = optimizer;
  options.optimizer.momentum = optimizer == OptimizerKind::sgd ? 0.9 : 0;
  options.lr = 0.01;
  options.epochs = 1;
  return options;
}

TEST(ShardedOptimizer, HasTheBitsOfReplicatedState) {
  for (const auto optimizer :
       {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw,
        OptimizerKind::adadelta}) {
    for (const int size : {1, 2, 3, 4}) {
      for (const char* backend : {"thread", "shm", "gloo", "hierarchical"}) {
        SCOPED_TRACE(
            std::string(name_of(optimizer)) + ", " + std::to_string(size) + " over " +
            backend);
        RunOptions options = options_of(optimizer);
        options.strategy.clip_norm = size % 2 == 0 ? 0.5 : 0;
        const auto train = [&](Communicator& comm) {
          return train_small_net(comm, options);
        };
        const auto replicated = on_each_rank(backend, size, train);
        options.strategy.optimizer_state = OptimizerState::sharded;
        for (const auto& rank : on_each_rank(backend, size, train)) {
          EXPECT_EQ(rank.sha256, replicated[0].sha256);
        }
      }
    }
  }
}

TEST(ShardedOptimizer, PipelineReplicasHaveTheBitsOfReplicatedState) {
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
      options.strategy.optimizer_state = OptimizerState::sharded;
      const auto sharded = on_each_rank(backend, stages * replicas, train);
      for (size_t rank = 0; rank < sharded.size(); ++rank) {
        EXPECT_EQ(sharded[rank].sha256, replicated[rank].sha256) << rank;
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
    options.optimizer_state =
        sharded ? OptimizerState::sharded : OptimizerState::replicated;
    return options;
  }
};

std::vector<NamedTensor> copies(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> copied;
  for (const auto& [name, tensor] : tensors) {
    copied.push_back({name, tensor.detach().clone()});
  }
  return copied;
}

void load(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& into) {
  TANDEM_CHECK(from.size() == into.size(), "numbers of tensors differ");
  for (size_t i = 0; i < from.size(); ++i) {
    into[i].tensor.detach().copy_(from[i].tensor);
  }
}

TEST(ShardedOptimizer, EachRankKeepsTheStateOfItsShareUntilItIsCollected) {
  run_backend("shm", 3, [](Communicator& comm) {
    Stepper sharded(comm, true);
    Stepper replicated(comm, false);
    sharded.steps(2);
    replicated.steps(2);
    auto& optimizer = *sharded.replica.optimizer;
    for (const Arena* arena : optimizer.state()) {
      for (const auto& range : arena->layout().trainable_ranges()) {
        const int64_t share = range.size() / comm.size();
        auto others = arena->slice(range).clone();
        others.narrow(0, comm.rank() * share, share).zero_();
        TANDEM_CHECK(others.eq(0).all().item<bool>(), "updated more than its share");
      }
    }
    const auto collected = sharded.replica.strategy->collect_state();
    const auto whole = replicated.replica.strategy->collect_state();
    for (size_t i = 0; comm.rank() == 0 && i < whole.optimizer.size(); ++i) {
      TANDEM_CHECK(
          collected.optimizer[i].tensor.equal(whole.optimizer[i].tensor),
          collected.optimizer[i].name);
    }
  });
}

TEST(ShardedOptimizer, ResumesFromStateLoadedAtRank0) {
  run_backend("shm", 2, [](Communicator& comm) {
    Stepper first(comm, true);
    first.steps(2);
    const auto state = first.replica.strategy->collect_state();
    const auto model = copies(state.model);
    const auto optimizer = copies(state.optimizer);
    first.steps(2);

    Stepper second(comm, true, 9);
    second.context.step = 2;
    if (comm.rank() == 0) {
      const auto fresh = local_state(second.replica.arenas, *second.replica.optimizer);
      load(model, fresh.model);
      load(optimizer, fresh.optimizer);
    }
    second.replica.strategy->start();
    second.steps(2);
    TANDEM_CHECK(
        second.replica.parameters().equal(first.replica.parameters()),
        "the resumed run differs");
  });
}

TEST(ShardedOptimizer, ResyncRepairsParametersAndKeepsEveryRanksState) {
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

TEST(ShardedOptimizer, RanksCannotDrift) {
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

TEST(ShardedOptimizer, AllRanksGetTheLossScaleOfRank0) {
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

TEST(ShardedOptimizer, ArenasThatDoNotDivideAreAnError) {
  const auto make = [](Communicator& comm) {
    const auto model = make_small_model({flatten(), linear("a", 64, 5)});
    ModelArenas arenas(model->parameters(), model->buffers());
    const auto executor = make_eager_executor(*model, arenas, {});
    const auto optimizer = make_optimizer({}, arenas.parameters(), arenas.gradients());
    StrategyOptions options;
    options.optimizer_state = OptimizerState::sharded;
    (void)make_strategy(options, {comm, *executor, arenas, *optimizer});
  };
  expect_error<ConfigError>([&] { run_backend("thread", 3, make); }, {"divisor"});
}

TEST(ShardedOptimizer, RejectsStrategiesWithoutShardedState) {
  RunOptions options;
  options.strategy.kind = StrategyKind::averaging;
  options.strategy.optimizer_state = OptimizerState::sharded;
  expect_error<ConfigError>(
      [&] {
        run_backend(
            "thread", 2, [&](Communicator& comm) { train_small_net(comm, options); });
      },
      {"optimizer_state is sharded, which is for strategy sequential"});
}

}  // namespace tandem::sharded_optimizer_test
