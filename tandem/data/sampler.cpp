#include "tandem/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/data/read_record.h"

namespace tandem {

namespace {

void check(const SamplerOptions& options) {
  if (options.size < 1) {
    throw ConfigError("[data] the data set is empty; change --data");
  }
  if (options.num_shards < 1 || options.shard < 0 ||
      options.shard >= options.num_shards) {
    throw ConfigError(fmt::format(
        "[data] shard is {}, expected less than num_shards, which is {}; correct one "
        "of them",
        options.shard, options.num_shards));
  }
  if (options.blocks < 1 || options.size % options.blocks != 0 ||
      options.first_position % options.blocks != 0) {
    throw ConfigError(fmt::format(
        "[data] {} samples from position {} do not divide into {} blocks; resume with "
        "the previous number of ranks",
        options.size, options.first_position, options.blocks));
  }
  if (options.first_position < 0) {
    throw ConfigError(fmt::format(
        "[data] first_position is {}, expected 0 or more; correct it",
        options.first_position));
  }
  if (options.batch < 0 ||
      (options.batch > 0 && (options.tail != Tail::keep || options.blocks > 1))) {
    throw ConfigError(fmt::format(
        "[data] batches of {} samples cannot be divided among shards that pad, drop or "
        "hold blocks; keep every sample (Tail::keep) in one block",
        options.batch));
  }
}

int64_t samples_left(const SamplerOptions& options) {
  return std::max<int64_t>(0, options.size - options.first_position);
}

std::vector<int64_t> block_order(const SamplerOptions& options, int64_t epoch) {
  const int64_t size = options.size / options.blocks;
  std::vector<int64_t> order(static_cast<size_t>(size));
  if (!options.shuffle) {
    std::iota(order.begin(), order.end(), int64_t{0});
    return order;
  }
  const auto seed = options.seed + static_cast<uint64_t>(epoch);
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto permutation = at::randperm(size, generator, at::kLong);
  const int64_t* values = permutation.data_ptr<int64_t>();
  order.assign(values, values + size);
  return order;
}

std::vector<int64_t> epoch_order(const SamplerOptions& options, int64_t epoch) {
  const auto places = block_order(options, epoch);
  if (options.blocks == 1) {
    return places;
  }
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(options.size));
  for (const int64_t place : places) {
    for (int64_t block = 0; block < options.blocks; ++block) {
      order.push_back(block * options.size / options.blocks + place);
    }
  }
  return order;
}

// Returns this shard's part of a divided batch of `count` samples.
Chunk own_chunk(const SamplerOptions& options, int64_t count) {
  return chunk_of(count, options.num_shards, options.shard);
}

int64_t divided_position(const SamplerOptions& options, int64_t place) {
  const int64_t left = samples_left(options);
  const int64_t whole_batches = left / options.batch;
  const int64_t each = own_chunk(options, options.batch).count;
  // A shard may have no samples in whole batches, but some in the last batch.
  const int64_t batch =
      each == 0 ? whole_batches : std::min(place / each, whole_batches);
  const int64_t count = std::min(options.batch, left - batch * options.batch);
  return options.first_position + batch * options.batch +
         own_chunk(options, count).first + place - batch * each;
}

}  // namespace

Chunk chunk_of(int64_t count, int64_t num_shards, int64_t shard) {
  const int64_t each = (count + num_shards - 1) / num_shards;
  const int64_t first = std::min(count, shard * each);
  return {first, std::min(each, count - first)};
}

int64_t position_of(const SamplerOptions& options, int64_t place) {
  return options.batch > 0
             ? divided_position(options, place)
             : options.first_position + place * options.num_shards + options.shard;
}

int64_t shard_size(const SamplerOptions& options) {
  check(options);
  const int64_t shards = options.num_shards;
  const int64_t left = samples_left(options);
  if (options.batch > 0) {
    return left / options.batch * own_chunk(options, options.batch).count +
           own_chunk(options, left % options.batch).count;
  }
  switch (options.tail) {
    case Tail::pad:
      return (left + shards - 1) / shards;
    case Tail::drop:
      return left / shards;
    default:
      return std::max<int64_t>(0, left - options.shard + shards - 1) / shards;
  }
}

int64_t end_position(const SamplerOptions& options) {
  return options.first_position + (options.tail == Tail::keep
                                       ? samples_left(options)
                                       : shard_size(options) * options.num_shards);
}

std::vector<int64_t> shard_indices(const SamplerOptions& options, int64_t epoch) {
  auto indices = order_of_shard(options, epoch);
  record_read(options, epoch, 0);
  return indices;
}

std::vector<int64_t> order_of_shard(const SamplerOptions& options, int64_t epoch) {
  const auto order = epoch_order(options, epoch);
  std::vector<int64_t> indices(static_cast<size_t>(shard_size(options)));
  for (size_t place = 0; place < indices.size(); ++place) {
    const int64_t position = position_of(options, static_cast<int64_t>(place));
    indices[place] = order[static_cast<size_t>(position % options.size)];
  }
  return indices;
}

}  // namespace tandem
