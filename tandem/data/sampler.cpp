#include "tandem/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <numeric>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

namespace {

void check(const SamplerOptions& options) {
  if (options.size < 1) {
    throw ConfigError("[data] the data set is empty; name another with --data");
  }
  if (options.num_shards < 1 || options.shard < 0 ||
      options.shard >= options.num_shards) {
    throw ConfigError(
        "[data] shard " + std::to_string(options.shard) + " of " +
        std::to_string(options.num_shards) + " cannot be");
  }
}

std::vector<int64_t> epoch_order(const SamplerOptions& options, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(options.size));
  if (!options.shuffle) {
    std::iota(order.begin(), order.end(), int64_t{0});
    return order;
  }
  const auto seed = options.seed + static_cast<uint64_t>(epoch);
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto permutation = at::randperm(options.size, generator, at::kLong);
  const int64_t* values = permutation.data_ptr<int64_t>();
  order.assign(values, values + options.size);
  return order;
}

}  // namespace

int64_t shard_size(const SamplerOptions& options) {
  check(options);
  const int64_t shards = options.num_shards;
  switch (options.tail) {
    case Tail::pad:
      return (options.size + shards - 1) / shards;
    case Tail::drop:
      return options.size / shards;
    default:
      return (options.size - options.shard + shards - 1) / shards;
  }
}

std::vector<int64_t> shard_indices(const SamplerOptions& options, int64_t epoch) {
  const auto order = epoch_order(options, epoch);
  std::vector<int64_t> indices(static_cast<size_t>(shard_size(options)));
  for (size_t place = 0; place < indices.size(); ++place) {
    const int64_t position = position_of(options, static_cast<int64_t>(place));
    indices[place] = order[static_cast<size_t>(position % options.size)];
  }
  return indices;
}

}  // namespace tandem
