#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

/// Treatment of samples that do not divide evenly among the shards.
enum class Tail {
  // Repeat samples from the front, so that all shards have equal sizes
  // (drop_last=False).
  pad,
  // Skip the last samples, so that all shards have equal sizes (drop_last=True).
  drop,
  // Use every sample exactly once, so that sizes of shards differ by up to one sample.
  // For evaluation.
  keep,
};

/// Settings of a sampler.
struct SamplerOptions {
  // Number of samples in the data set.
  int64_t size = 0;
  int64_t num_shards = 1;
  int64_t shard = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  Tail tail = Tail::pad;
  // Number of equal blocks into which the samples are divided. All blocks are shuffled
  // in the same way and read round-robin: position p is in block p % blocks. If there
  // are as many shards as blocks, each shard therefore reads the same block in every
  // epoch, as scattered data require. `size` and `first_position` must be multiples of
  // `blocks`.
  int64_t blocks = 1;
  // First global position to read. Earlier positions were already read, possibly by
  // another number of shards: a run can resume with another number of ranks.
  int64_t first_position = 0;
  // Size of the batches that are divided among the shards (chunk_of()); the last batch
  // may be smaller. `tail` must then be `keep` and `blocks` must be 1. 0: positions are
  // distributed to the shards round-robin.
  int64_t batch = 0;
};

/// A range of consecutive elements.
struct Chunk {
  int64_t first = 0;
  int64_t count = 0;
};

/// Returns a shard's part of `count` samples, divided as torch.chunk() divides a
/// tensor: equal numbers, rounded up, and the rest for the last shards. Three shards
/// get 22, 22 and 20 of 64 samples, or 2, 2 and 0 of 4 samples.
[[nodiscard]] Chunk chunk_of(int64_t count, int64_t num_shards, int64_t shard);

/// Returns the indices of one shard's samples in one epoch, in order. With `pad` and
/// `drop`, these are exactly the indices of torch.utils.data.DistributedSampler after
/// set_epoch(epoch). Records the call for the checks of DistributedDataParallel
/// (read_record.h).
///
/// A global position is an index in the sample order of the epoch, which all shards
/// share. If positions are distributed round-robin, sample i of a shard has the global
/// position first_position + i * num_shards + shard; see position_of().
///
/// Source: torch/utils/data/distributed.py. Throws ConfigError for invalid sizes.
[[nodiscard]] std::vector<int64_t> shard_indices(
    const SamplerOptions& options, int64_t epoch);

/// Returns the result of shard_indices() without recording the call. A pure function.
[[nodiscard]] std::vector<int64_t> order_of_shard(
    const SamplerOptions& options, int64_t epoch);

/// Returns the number of samples in the shard `options.shard`.
[[nodiscard]] int64_t shard_size(const SamplerOptions& options);

/// Returns the global position after the last position that any shard reads.
[[nodiscard]] int64_t end_position(const SamplerOptions& options);

/// Returns the global position of sample number `place`, from 0, of the shard.
[[nodiscard]] int64_t position_of(const SamplerOptions& options, int64_t place);

/// Returns whether the sample at a global position is padding: a repeated sample that
/// makes the shards equal in size.
inline bool is_padding(const SamplerOptions& options, int64_t position) {
  return position >= options.size;
}

}  // namespace tandem
