#pragma once

#include <cstdint>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Divisor of a rank's sums over an epoch.
enum class EpochMean { shard, dataset };
template <>
struct Choices<EpochMean> {
  static constexpr Choice<EpochMean> rows[] = {
      {EpochMean::shard, "shard", "the samples that the rank read"},
      {EpochMean::dataset, "dataset",
       "all samples, as with division by len(dataloader.dataset)"}};
};

/// How long a run trains, on which batches.
struct TrainingOptions {
  int64_t epochs = 1;
  // Samples per rank and micro-batch, or of all ranks together with divide_batch.
  int64_t batch_size = 64;
  // Each batch is divided among the ranks as torch.nn.DataParallel divides its own
  // (data/sampler.h), so that a step has as many samples on any number of ranks.
  bool divide_batch = false;
  // Micro-batches per optimizer step.
  int64_t accumulate = 1;
  int64_t seed = 0;
  double min_delta = 0;
  // Divisor of a rank's own sums. Sums over all ranks are divided by all samples.
  EpochMean epoch_mean = EpochMean::shard;
  int64_t patience = 0;

  template <typename Table>
  static void describe(Table& table) {
    using O = TrainingOptions;
    table.section("training");
    table.add("epochs", &O::epochs, "passes over the data").between(0, 1e9);
    table.add("batch_size", &O::batch_size, "samples per rank and micro-batch")
        .between(1, 1 << 24);
    table
        .add(
            "divide_batch", &O::divide_batch,
            "batch_size counts all ranks' samples, each rank gets its chunk, as of "
            "torch.nn.DataParallel; no sample is repeated or left out")
        .of("data_parallel");
    table.add("accumulate", &O::accumulate, "micro-batches per optimizer step")
        .between(1, 1 << 14)
        .also({"--micro-batches", "--gradient-accumulation-steps"});
    table
        .add(
            "seed", &O::seed,
            "seed of weights and dropout, and of the sample order unless "
            "sampler_seed is set")
        .between(0, 9007199254740992)
        .kept();
    table
        .add(
            "min_delta", &O::min_delta,
            "converged when an epoch's loss improves by less; 0: train all epochs")
        .between(0, kLarge);
    // min_delta compares with the loss of the epoch before, which a checkpoint keeps.
    table
        .add(
            "epoch_mean", &O::epoch_mean,
            "divisor of a rank's own loss and accuracy, in epoch_line and for "
            "min_delta")
        .kept();
    table
        .add(
            "patience", &O::patience,
            "evaluations without a lower test loss that end the run; 0: train all "
            "epochs")
        .between(0, 1e9);
  }
};

}  // namespace tandem
