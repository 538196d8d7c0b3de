#pragma once

#include <string>
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

/// Returns the sampler options of a rank. A rank that reads no data gets the options of
/// shard 0, because it makes as many steps as a rank that reads data.
SamplerOptions sampler_options(
    const RunConfig& config, const Dataset& train, const DataShard& shard);

/// Returns the number of samples in the smallest micro-batch of any rank from
/// `first_position` to the end of an epoch, 0 if there is none.
int64_t smallest_batch(
    const RunConfig& config, const Dataset& train, const DataShard& shard,
    int64_t first_position = 0);

/// Returns the number that a PyTorch program would pass to set_epoch(): `epoch`, which
/// counts from 0, or always 0 if config.data.reshuffle is false.
int64_t sampler_epoch(const RunConfig& config, int64_t epoch);

/// Throws ConfigError if each rank has only its own share of scattered data, but the
/// strategy requires that a rank reads another share.
void check_shares(
    const RunConfig& config, const Dataset& train, const DataShard& shard,
    const Communicator& comm);

/// Reads a rank's batches, epoch by epoch, and checks that the ranks together read each
/// sample as planned (PartitionAudit). The arguments of the constructor must outlive
/// the object.
class TrainingBatches {
 public:
  /// Prepares the batches of a rank whose device is `placement`.
  TrainingBatches(
      const RunConfig& config, const Dataset& train, const Assembly& parts,
      Communicator& comm, const Placement& placement);

  /// Returns whether this rank reads samples. The rank of a parameter server reads
  /// none.
  bool reads() const {
    return shard_.shard >= 0;
  }
  /// Returns Loader::why_not_on_device().
  const std::string& why_not_on_device() const {
    return loader_.why_not_on_device();
  }
  /// Returns the number of samples of this rank in an epoch.
  int64_t samples() const;
  /// Returns the number of samples of all ranks together in a step. The last step of an
  /// epoch may have fewer.
  int64_t samples_per_step() const;

  /// Returns the number of steps of a whole epoch at this world size.
  int64_t steps_per_epoch() const {
    return steps_per_epoch_;
  }

  /// Throws the errors of check_same_steps() for the samples and steps from `position`
  /// to the end of the epoch. Also throws ConfigError if a new run makes no steps, or
  /// if a micro-batch has one sample but batch norm needs two. Collective.
  void check(const Position& position);

  /// Begins at `position`, which is the start of an epoch or, after a resume, in the
  /// middle of an epoch.
  void begin(const Position& position);

  /// Returns the number of steps from the position of begin() to the end of the epoch.
  int64_t num_steps() const {
    return loader_.num_steps();
  }

  /// Returns the micro-batches of the next step; empty if this rank reads no samples or
  /// has none left.
  std::vector<Batch> next();

  /// Returns the value of Position::samples_in_epoch after one more step.
  int64_t after_step(int64_t samples_in_epoch) const;

  /// Checks that the ranks together have read the samples of the epoch as planned.
  /// Throws the errors of PartitionAudit::finish(). Collective.
  void finish_epoch() {
    audit_.finish();
  }

 private:
  SamplerOptions sampler() const;
  void check_smallest_batch(int64_t first_position) const;

  const RunConfig& config_;
  const Dataset& train_;
  Communicator& comm_;
  DataShard shard_;
  // Assembly::needs_two_samples.
  std::string needs_two_samples_;
  Loader loader_;
  PartitionAudit audit_;
  int64_t steps_per_epoch_;
};

}  // namespace tandem
