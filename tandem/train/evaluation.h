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

/// Evaluates a model on a data set. Without a limit, every sample counts exactly once
/// for any number of ranks, because shards have no padding and ranks reduce sums
/// instead of means.
///
/// Collective; all ranks get the same result. `metric` is the metric of the strategy's
/// loss. `limit_batches` is the maximum number of batches per rank, which --dry-run
/// sets; 0 means all batches.
[[nodiscard]] TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, const Metric& metric = kAccuracy, int64_t limit_batches = 0);

/// Evaluates like evaluate(), but calls `stop` on all ranks about twice a second, and
/// returns nullopt on all ranks if it returns true. `stop` may be collective, and
/// returns the same value on all ranks.
[[nodiscard]] std::optional<TestReport> evaluate_unless(
    const std::function<bool()>& stop, Strategy& strategy, Communicator& comm,
    const Dataset& dataset, LoaderOptions options, const Metric& metric = kAccuracy,
    int64_t limit_batches = 0);

/// A batch of an evaluation and the outputs of the model.
struct EvaluatedBatch {
  // The data set, with the classes of the checkpoint (format_from()).
  const Dataset& data;
  // Batch::samples is defined. Its samples are in the order of the data set.
  const Batch& batch;
  // One row per sample, float32, on the device of the evaluation. Valid until the next
  // batch.
  const at::Tensor& output;
  LossKind loss;
  // Class that the metric leaves out (Loss::ignore_index).
  int64_t ignore_index;
  // False: the samples have no targets, and the targets of the batch are 0.
  bool has_targets;
  // Normalization of the run's targets.
  const TargetScale& scale;
};

/// Options of evaluate_checkpoint().
struct CheckpointEvaluation {
  // Name or path of the data set, as for --data; "" selects the data set of the run
  // that saved the checkpoint.
  std::string data;
  // Network file, for a checkpoint whose model was a network file or a custom model; ""
  // selects the copy in the run's directory (checkpoint/network_file.h).
  std::string network;
  // True: the network file may be TorchScript, which runs code, without being named by
  // `network`.
  bool trusts_scripts = false;
  // Custom test data, which replaces `data`.
  std::optional<Dataset> dataset;
  // Part of `data` to use. If `data` is not the data set of the training and has no
  // test part, `test` selects all samples.
  DataPart part = DataPart::test;
  // False: the samples may lack targets, and `data` may have only inputs
  // (load_inputs()). The report is then meaningless.
  bool needs_targets = true;
  // Number of samples to use, as by limit_samples() (data/load_dataset.h). If targets
  // are not needed, or with `dataset`, the first samples. 0: all samples.
  int64_t limit = 0;
  int64_t batch_size = 1000;
  CheckpointWeights weights = CheckpointWeights::own;
  // Device of the evaluation.
  Placement placement;
  // Function that is called after each batch; may be empty.
  std::function<void(const EvaluatedBatch&)> after_batch;
};

/// Evaluates a checkpoint's model on the part options.part of a data set, on one rank.
///
/// `checkpoint` is a path as for model_file() (checkpoint/checkpoint.h). If the run
/// used a custom model or loss, pass the same model and loss.
///
/// Throws DataError if the path is not a checkpoint, and the errors of load_dataset().
/// Throws DataError if targets are needed and the loss is not finite. Throws
/// ConfigError if the checkpoint belongs to another model, or has no weights of the
/// kind options.weights. Also throws ConfigError if neither `data` nor `dataset` is
/// given and the run used a custom data set, or the files of its data set have changed.
[[nodiscard]] TestReport evaluate_checkpoint(
    const std::string& checkpoint, const CheckpointEvaluation& options = {},
    std::unique_ptr<Model> model = nullptr, LossFunction loss = {});

}  // namespace tandem
