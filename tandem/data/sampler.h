#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

/// What happens when the samples do not divide evenly among the shards.
enum class Tail {
  // Repeat samples from the front, so all shards are equal (drop_last=False).
  pad,
  // Leave the last samples out, so all shards are equal (drop_last=True).
  drop,
  // Every sample exactly once; shards differ by one. For evaluation.
  keep,
};

struct SamplerOptions {
  // Samples in the data set.
  int64_t size = 0;
  int64_t num_shards = 1;
  int64_t shard = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  Tail tail = Tail::pad;
  // The samples lie in this many equal blocks, which are all shuffled alike and taken
  // in turn: position p is of block p % blocks. So each of as many shards reads one
  // block in every epoch, which is for data that was scattered. `size` and
  // `first_position` are multiples of it.
  int64_t blocks = 1;
  // Global positions before this one are done, by whatever number of shards: these
  // shards divide the rest. For a run that goes on with another number of ranks.
  int64_t first_position = 0;
  // 0: positions are dealt to the shards in turn. Else they lie in batches of so many,
  // the last one of what is left, and each batch is divided among the shards
  // (chunk_of). Every sample is read once: `tail` is `keep`, `blocks` 1.
  int64_t batch = 0;
};

/// Consecutive positions.
struct Chunk {
  int64_t first = 0;
  int64_t count = 0;
};

/// What a shard gets of `count` samples that are divided as torch.chunk() divides a
/// tensor: each the same number, rounded up, and the last ones what is left: 64 on 3
/// shards are 22, 22 and 20; 4 on 3 are 2, 2 and none.
[[nodiscard]] Chunk chunk_of(int64_t count, int64_t num_shards, int64_t shard);

/// The samples of one shard in one epoch, in order: exactly the indices of
/// torch.utils.data.DistributedSampler (after set_epoch(epoch)) for `pad` and
/// `drop`. A pure function.
///
/// Dealt in turn, the sample at place i of a shard has global position first_position +
/// i * num_shards + shard in the epoch; see position_of.
///
/// Source: torch/utils/data/distributed.py. Throws ConfigError for impossible sizes.
[[nodiscard]] std::vector<int64_t> shard_indices(
    const SamplerOptions& options, int64_t epoch);

/// Number of samples in the shard.
[[nodiscard]] int64_t shard_size(const SamplerOptions& options);

/// The first global position after those that all shards take together.
[[nodiscard]] int64_t end_position(const SamplerOptions& options);

/// Global position in the epoch of the sample at place `place` of the shard.
[[nodiscard]] int64_t position_of(const SamplerOptions& options, int64_t place);

/// Whether a global position repeats a sample only to fill up the shards.
inline bool is_padding(const SamplerOptions& options, int64_t position) {
  return position >= options.size;
}

}  // namespace tandem
