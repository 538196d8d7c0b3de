#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tandem/comm/communicator.h"
#include "tandem/data/sampler.h"

namespace tandem {

/// Proves that the ranks together read what an epoch holds: each sample once, and
/// again only where the sampler says that it fills up the shards.
///
/// Counts what was really read, so it also finds ranks whose data, seed or place do
/// not fit together. One reduction of 4 bytes per sample each epoch.
class PartitionAudit {
 public:
  /// `sampler`: of this rank; its shard does not matter.
  PartitionAudit(Communicator& comm, const SamplerOptions& sampler);

  /// Before the first batch of an epoch, or of the part of it that is left. `order` is
  /// the epoch whose order it has.
  void begin(int64_t epoch, int64_t order, int64_t first_position);

  /// int64 samples of a batch that this rank has read.
  void add(const at::Tensor& samples);

  /// After the last batch. Collective. Throws Error that names the first sample
  /// that was read too often or not at all, and the ranks that read it.
  void finish();

 private:
  at::Tensor planned() const;
  [[noreturn]] void fail(const at::Tensor& totals, const at::Tensor& wanted);

  Communicator& comm_;
  SamplerOptions sampler_;
  int64_t epoch_ = 0;
  int64_t order_ = 0;
  // int32, reads of each sample by this rank.
  at::Tensor counts_;
};

}  // namespace tandem
