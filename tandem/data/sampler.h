#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

/// Treatment of samples that do not divide evenly among the shards.
enum class Tail {
  // Repeat samples from the front, so all shards are equal (drop_last=False).
  pad,
  // Skip the last samples, so all shards are equal (drop_last=True).
  drop,
  // Use every sample exactly once; shards differ by one sample. For evaluation.
  keep,
};

/// Settings of a sampler.
struct SamplerOptions {
  // Samples in the data set.
  int64_t size = 0;
  int64_t num_shards = 1;
  int64_t shard = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  Tail tail = Tail::pad;
  // Number of equal blocks of samples, which are all shuffled in the same way and read
  // in turn: position p is in block p % blocks. So if there are as many shards, each
  // reads one block in every epoch, which is for data that was scattered. `size` and
  // `first_position` are multiples of it.
  int64_t blocks = 1;
  // Global positions before this one were already read, by any number of shards; these
  // shards divide the rest. For a run that resumes with another number of ranks.
  int64_t first_position = 0;
  // 0: positions are dealt to the shards in turn. Otherwise, positions form batches of
  // this size (the last one may be smaller), and each batch is divided among the shards
  // (chunk_of()). Every sample is read once: `tail` is `keep`, `blocks` 1.
  int64_t batch = 0;
};

/// A range of consecutive positions.
struct Chunk {
  int64_t first = 0;
  int64_t count = 0;
};

/// Returns a shard's part of `count` samples that are divided as torch.chunk() divides
/// a tensor: equal numbers, rounded up, and the rest for the last shards. 64 samples on
/// 3 shards are 22, 22 and 20; 4 on 3 are 2, 2 and none.
[[nodiscard]] Chunk chunk_of(int64_t count, int64_t num_shards, int64_t shard);

/// Returns the samples of one shard in one epoch, in order: exactly the indices of
/// torch.utils.data.DistributedSampler (after set_epoch(epoch)) for `pad` and `drop`. A
/// pure function.
///
/// If positions are dealt in turn, the sample at place i of a shard has global position
/// first_position + i * num_shards + shard in the epoch; see position_of().
///
/// Source: torch/utils/data/distributed.py. Throws ConfigError for invalid sizes.
[[nodiscard]] std::vector<int64_t> shard_indices(
    const SamplerOptions& options, int64_t epoch);

/// Returns the number of samples in the shard.
[[nodiscard]] int64_t shard_size(const SamplerOptions& options);

/// Returns the first global position after the positions that all shards read together.
[[nodiscard]] int64_t end_position(const SamplerOptions& options);

/// Returns the global position in the epoch of the sample at place `place` of the
/// shard.
[[nodiscard]] int64_t position_of(const SamplerOptions& options, int64_t place);

/// Returns whether a global position repeats a sample only to make the shards equal.
inline bool is_padding(const SamplerOptions& options, int64_t position) {
  return position >= options.size;
}

}  // namespace tandem
