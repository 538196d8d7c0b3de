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

/// Evaluates a model on a data set. Every sample counts exactly once for any number of
/// ranks, because shards have no padding and ranks reduce sums, not means.
///
/// Collective; all ranks get the same result. `limit_batches`: the largest number of
/// batches per rank, for --dry-run; 0: all.
[[nodiscard]] TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, int64_t limit_batches = 0);

/// Evaluates as evaluate() does, but ends within about half a second after `stop`
/// returns true on any rank. Then returns nullopt on all ranks.
[[nodiscard]] std::optional<TestReport> evaluate_unless(
    const std::function<bool()>& stop, Strategy& strategy, Communicator& comm,
    const Dataset& dataset, LoaderOptions options, int64_t limit_batches = 0);

/// Options of evaluate_checkpoint().
struct CheckpointEvaluation {
  // Name or folder, as for --data; "": the data set of the run.
  std::string data;
  // The program's own test data, used instead of `data`.
  std::optional<Dataset> dataset;
  // Number of samples from the start of the data set; 0: all.
  int64_t limit = 0;
  int64_t batch_size = 1000;
  // Device of the evaluation.
  Placement placement;
};

/// Evaluates a checkpoint's model on the test part of a data set, on one rank.
///
/// `checkpoint`: its directory, or the model.safetensors in it. `model` and `loss`: the
/// program's own, if the run had them. Throws DataError if the path is no checkpoint.
/// Throws ConfigError if the checkpoint is of another model, or if the run used a
/// custom data set and neither `data` nor `dataset` is given.
[[nodiscard]] TestReport evaluate_checkpoint(
    const std::string& checkpoint, const CheckpointEvaluation& options = {},
    std::unique_ptr<Model> model = nullptr, LossFunction loss = {});

}  // namespace tandem
