#pragma once

#include <cstdint>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Divisor of one rank's sums over an epoch: the sum of losses and the number of
/// correct samples.
enum class EpochMean { shard, dataset };
template <>
struct Choices<EpochMean> {
  static constexpr Choice<EpochMean> rows[] = {
      {EpochMean::shard, "shard", "number of samples that the rank read"},
      {EpochMean::dataset, "dataset",
       "number of all samples, as len(dataloader.dataset)"}};
};

/// Length of training, size of batches, and seed.
struct TrainingOptions {
  int64_t epochs = 1;
  // Number of samples in a micro-batch of each rank. With divide_batch, number of
  // samples in a micro-batch of all ranks together.
  int64_t batch_size = 64;
  // True: each batch is divided among the ranks (data/sampler.h), as in
  // torch.nn.DataParallel. A step then has the same number of samples with any number
  // of ranks.
  bool divide_batch = false;
  // Number of micro-batches per optimizer step.
  int64_t accumulate = 1;
  int64_t seed = 0;
  double min_delta = 0;
  // Divisor for the loss and accuracy of one rank. Sums over all ranks are always
  // divided by the number of their samples.
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
            "divide each batch of batch_size samples among the ranks, as "
            "torch.nn.DataParallel does; no sample is repeated or left out")
        .of("data_parallel");
    table.add("accumulate", &O::accumulate, "micro-batches per optimizer step")
        .between(1, 1 << 14)
        .also({"--micro-batches", "--gradient-accumulation-steps"});
    table
        .add(
            "seed", &O::seed,
            "seed of initial weights, dropout, and sample order (unless sampler_seed "
            "is set)")
        .between(0, 9007199254740992)
        .kept();
    table
        .add(
            "min_delta", &O::min_delta,
            "smallest improvement of an epoch's loss with which a rank continues to "
            "train; 0: train all epochs")
        .between(0, kLarge);
    // epoch_mean must not change on resume, because min_delta compares losses with the
    // previous epoch's loss in the checkpoint.
    table
        .add(
            "epoch_mean", &O::epoch_mean,
            "divisor of the loss and accuracy of one rank, for epoch_line and "
            "min_delta")
        .kept();
    table
        .add(
            "patience", &O::patience,
            "number of evaluations without a lower loss of the validation part (of the "
            "test part without --validation) after which the run ends; 0: train all "
            "epochs")
        .between(0, 1e9);
  }
};

}  // namespace tandem
