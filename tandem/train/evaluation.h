#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/data/loader.h"
#include "tandem/model/model.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Evaluates a data set with every sample counted exactly once, whatever the
/// number of ranks: shards without padding, and sums that are reduced, not means.
///
/// Collective; all ranks get the same result. `limit_batches` > 0 ends early (for
/// --dry-run).
[[nodiscard]] TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, int64_t limit_batches = 0);

/// The same, broken off soon after `stop` says so on some rank; then nullopt on all of
/// them.
[[nodiscard]] std::optional<TestReport> evaluate_unless(
    const std::function<bool()>& stop, Strategy& strategy, Communicator& comm,
    const Dataset& dataset, LoaderOptions options, int64_t limit_batches = 0);

struct CheckpointEvaluation {
  // As --data; "": what the model was trained on.
  std::string data;
  // The program's own test data, instead of `data`.
  std::optional<Dataset> dataset;
  // The first so many samples; 0: all.
  int64_t limit = 0;
  int64_t batch_size = 1000;
  // Where it is evaluated.
  Placement placement;
};

/// Evaluates a checkpoint's model on the test part of a data set, on one rank.
///
/// `checkpoint` is its directory or the model.safetensors in it. `model` and `loss`:
/// the program's own where the run had some. Throws DataError for what is no
/// checkpoint, ConfigError for one of another model, and for a run on a custom data set
/// if neither `data` nor `dataset` is given.
[[nodiscard]] TestReport evaluate_checkpoint(
    const std::string& checkpoint, const CheckpointEvaluation& options = {},
    std::unique_ptr<Model> model = nullptr, LossFunction loss = {});

}  // namespace tandem
