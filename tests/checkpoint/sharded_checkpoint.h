#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/formats/tensor_list.h"
#include "tests/comm/group.h"
#include "tests/parallel/replica.h"

namespace tandem {

/// A rank that trains a small model with Adam and moving averages.
struct ShardedRank {
  Communicator& comm;
  Replica replica;
  StepContext context = step_of(0.01);

  ShardedRank(Communicator& group, Sharding shard, uint64_t seed = 1)
      : comm(group),
        replica(
            make_small_model(layers(), seed), comm, strategy(shard), optimizer(),
            {LossKind::nll, Reduction::mean}) {}

  void steps(int count) {
    for (int i = 0; i < count; ++i, ++context.step) {
      const auto batch = first_batch(6, comm.size(), comm.rank(), context.step);
      replica.strategy->train_step({batch}, context);
    }
  }

  std::string sha256() const {
    replica.strategy->complete_parameters();
    return replica.arenas.parameters_sha256();
  }

  /// Saves a checkpoint in `directory` as a run does. Returns its path on rank 0.
  std::string save(const std::string& directory) {
    CheckpointContent mine;
    mine.position = {0, context.step, context.step, 60};
    mine.config = "format_version = 1\nseed = 7\n";
    if (comm.rank() == 0) {
      mine.description = {{"model", "small"}};
    }
    const auto add = [](const std::vector<NamedTensor>& from,
                        std::vector<NamedTensor>& to) {
      for (const auto& [name, tensor] : from) {
        to.push_back({name, tensor.detach().clone()});
      }
    };
    auto& strategy = *replica.strategy;
    strategy.visit_state([&](const TrainingState& piece) {
      add(piece.model, mine.state.model);
      add(piece.optimizer, mine.state.optimizer);
    });
    if (!strategy.divides_state()) {
      return comm.rank() == 0 ? save_checkpoint(directory, mine, {}) : "";
    }
    comm.on_rank_0([&] { return make_directories(directory), ""; });
    const CheckpointShare share{
        comm.rank(), comm.size(), strategy.divides_model(), true, 5};
    save_share(directory, mine, share);
    comm.barrier();
    mine.state = {};
    return comm.rank() == 0
               ? complete_checkpoint(
                     directory, mine, share, tensor_names(replica.arenas.state()), {})
               : "";
  }

  void load(const std::string& path) {
    CheckpointContent content;
    content.state = replica.strategy->state_to_load();
    load_checkpoint(path, content, comm);
    replica.strategy->start();
    context.step = content.position.step;
  }

 private:
  static std::vector<Layer> layers() {
    auto all = small_net_layers();
    all.insert(all.begin() + 1, batch_norm2d("bn", 4));
    return all;
  }
  static StrategyOptions strategy(Sharding shard) {
    StrategyOptions options;
    options.shard = shard;
    options.bucket_bytes = 2'000;
    return options;
  }
  static OptimizerOptions optimizer() {
    OptimizerOptions options;
    options.kind = OptimizerKind::adam;
    options.ema_decay = 0.9;
    return options;
  }
};

/// Trains two steps on `size` ranks and saves a checkpoint. Returns its path.
inline std::string saved_by(
    int size, Sharding shard, const std::string& directory, int steps = 2) {
  return on_each_rank("thread", size, [&](Communicator& comm) {
    ShardedRank rank(comm, shard);
    rank.replica.strategy->start();
    rank.steps(steps);
    return rank.save(directory);
  })[0];
}

}  // namespace tandem
