#pragma once

#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"
#include "tandem/data/loader.h"
#include "tandem/data/sampler.h"
#include "tandem/train/assembly.h"
#include "tandem/train/report/partition_audit.h"

namespace tandem {

/// Returns the sampler options of a rank. A rank that reads no data has the options of
/// a rank that reads data, because it counts that rank's steps.
SamplerOptions sampler_options(
    const RunConfig& config, const Dataset& train, const DataShard& shard);

/// Returns the argument of PyTorch's set_epoch() for an epoch, from 0; 0 if the order
/// stays the same.
int64_t sampler_epoch(const RunConfig& config, int64_t epoch);

/// Scattered data is where it is: throws ConfigError when the strategy has a rank read
/// another's share.
void check_shares(
    const RunConfig& config, const Dataset& train, const DataShard& shard,
    const Communicator& comm);

/// The batches of a rank in a run, epoch by epoch, and the proof that the ranks
/// together read each sample once. What it is given outlives it.
class TrainingBatches {
 public:
  /// `placement`: where the rank computes.
  TrainingBatches(
      const RunConfig& config, const Dataset& train, const Assembly& parts,
      Communicator& comm, const Placement& placement);

  /// Whether this rank reads samples; a parameter server has none.
  bool reads() const {
    return shard_.shard >= 0;
  }
  /// Whether each batch is copied to a device, because that has no room for the images.
  bool sends_batches() const {
    return sends_batches_;
  }
  /// Of this rank in an epoch, and of all ranks together in a step.
  int64_t samples() const;
  int64_t samples_per_step() const;

  /// Of a whole epoch at this world size.
  int64_t steps_per_epoch() const {
    return steps_per_epoch_;
  }

  /// Checks that from here to the epoch's end all ranks make the same steps, and at the
  /// beginning of a run that there are any. Collective. Throws ConfigError.
  void check(const Position& position);

  /// An epoch begins, or what is left of it.
  void begin(const Position& position);

  /// Steps from there to the end of the epoch.
  int64_t num_steps() const {
    return loader_.num_steps();
  }

  /// The micro-batches of a step; none when this rank has no samples left.
  std::vector<Batch> next();

  /// Where all ranks together are in the epoch after a step more.
  int64_t after_step(int64_t samples_in_epoch) const;

  /// Behind a whole epoch. Collective. Throws as PartitionAudit::finish().
  void finish_epoch() {
    audit_.finish();
  }

 private:
  SamplerOptions sampler() const;

  const RunConfig& config_;
  const Dataset& train_;
  Communicator& comm_;
  DataShard shard_;
  Loader loader_;
  PartitionAudit audit_;
  bool sends_batches_;
  int64_t steps_per_epoch_;
};

}  // namespace tandem
