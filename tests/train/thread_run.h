#pragma once

#include <cstdint>
#include <vector>

#include "tandem/data/load_dataset.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"

namespace tandem {

/// Returns the settings of a small run on `nproc` thread ranks: SGD with batches of 8
/// samples.
inline RunConfig thread_config(ModelKind model, int64_t nproc) {
  RunConfig config;
  config.model.kind = model;
  config.training.batch_size = 8;
  config.optimizer.kind = OptimizerKind::sgd;
  config.ranks.kind = RankKind::thread;
  config.ranks.nproc = nproc;
  return config;
}

/// Trains on `size` thread ranks. Returns the summary of each rank.
inline std::vector<Summary> train_on_threads(
    int size, const RunConfig& config, const DatasetSplits& data) {
  return on_each_rank(
      "thread", size, [&](Communicator& comm) { return train(config, data, comm); });
}

inline const DatasetSplits& hundred_digits() {
  static const DatasetSplits data = load_dataset("digits", 100);
  return data;
}

inline std::vector<Summary> train_on_digits(int size, const RunConfig& config) {
  return train_on_threads(size, config, hundred_digits());
}

}  // namespace tandem
