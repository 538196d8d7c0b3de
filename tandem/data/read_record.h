#pragma once

#include <cstdint>
#include <memory>

#include "tandem/data/sampler.h"

namespace tandem {

/// The training samples that a thread has read with shard_indices(), DistributedSampler
/// or Loader. DistributedDataParallel compares the records of all ranks. Reads under
/// LibTorch's NoGradGuard are not recorded, because they belong to an evaluation.
struct ReadRecord {
  // Sampler of the last read.
  SamplerOptions sampler;
  // Epoch of shard_indices() in the last read.
  int64_t epoch = 0;
  // Number of samples in a batch of the last read; 0: unknown.
  int64_t batch_size = 0;
  // Number of reads.
  int64_t num_reads = 0;
};

/// Returns the record of the calling thread.
[[nodiscard]] std::shared_ptr<const ReadRecord> reads_of_this_thread();

/// Adds a read to the record of the calling thread.
void record_read(const SamplerOptions& sampler, int64_t epoch, int64_t batch_size);

}  // namespace tandem
