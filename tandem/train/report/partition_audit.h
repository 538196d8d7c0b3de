#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tandem/comm/communicator.h"
#include "tandem/data/sampler.h"

namespace tandem {

/// Checks that the ranks together read each sample of an epoch exactly once, except
/// samples that the sampler repeats as padding or drops.
///
/// The audit counts the samples that were actually read, so it also detects ranks with
/// different seeds or wrong shards. It reduces and broadcasts 4 bytes per sample in
/// each epoch.
class PartitionAudit {
 public:
  /// Prepares the audit. `sampler` has the options of this rank's sampler;
  /// SamplerOptions::shard is not used.
  PartitionAudit(Communicator& comm, const SamplerOptions& sampler);

  /// Begins an epoch at `first_position`, which is not 0 after a resume in the middle
  /// of an epoch. `order` is the number that determines the order of the samples
  /// (sampler_epoch()).
  void begin(int64_t epoch, int64_t order, int64_t first_position);

  /// Counts the samples (int64 indices) of a batch that this rank has read.
  void add(const at::Tensor& samples);

  /// Checks the epoch after its last batch. Throws an Error that names the first sample
  /// with a wrong number of reads, and the ranks that read it. Collective.
  void finish();

 private:
  at::Tensor planned() const;
  [[noreturn]] void fail(const at::Tensor& totals, const at::Tensor& wanted);

  Communicator& comm_;
  SamplerOptions sampler_;
  int64_t epoch_ = 0;
  int64_t order_ = 0;
  // Number of times that this rank has read each sample, int32.
  at::Tensor counts_;
};

}  // namespace tandem
