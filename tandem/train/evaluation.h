#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/data/loader.h"
#include "tandem/model/model.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Evaluates a model on a data set. Every sample counts exactly once for any number of
/// ranks, because shards have no padding and ranks reduce sums, not means.
///
/// Collective; all ranks get the same result. `limit_batches` is the largest number of
/// batches per rank, for --dry-run; 0 means all batches.
[[nodiscard]] TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, int64_t limit_batches = 0);

/// Evaluates like evaluate(), but returns nullopt on all ranks within about half a
/// second after `stop` returns true on any rank.
[[nodiscard]] std::optional<TestReport> evaluate_unless(
    const std::function<bool()>& stop, Strategy& strategy, Communicator& comm,
    const Dataset& dataset, LoaderOptions options, int64_t limit_batches = 0);

/// Options of evaluate_checkpoint().
struct CheckpointEvaluation {
  // Name or folder of the data set, as for --data; "" selects the data set of the run
  // that saved the checkpoint.
  std::string data;
  // Network file, if the checkpoint's model is a network file or the program's own; ""
  // selects the copy in the run's directory (checkpoint/network_file.h).
  std::string network;
  // The program's own test data, used instead of `data`.
  std::optional<Dataset> dataset;
  // Number of test samples to use, from the start of the data set; 0: all samples.
  int64_t limit = 0;
  int64_t batch_size = 1000;
  CheckpointWeights weights = CheckpointWeights::own;
  // Device of the evaluation.
  Placement placement;
};

/// Evaluates a checkpoint's model on the test part of a data set, on one rank.
///
/// `checkpoint` is the checkpoint's directory or the path of its model.safetensors. If
/// the run used a custom model or loss, pass the same model and loss.
///
/// Throws DataError if the path is not a checkpoint. Throws ConfigError if the
/// checkpoint belongs to another model, if the run used a custom data set and neither
/// `data` nor `dataset` is given, or if the checkpoint has no weights of this kind.
[[nodiscard]] TestReport evaluate_checkpoint(
    const std::string& checkpoint, const CheckpointEvaluation& options = {},
    std::unique_ptr<Model> model = nullptr, LossFunction loss = {});

}  // namespace tandem
