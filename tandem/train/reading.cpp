#include "tandem/train/reading.h"

#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {

namespace {

Tail tail_of(Uneven uneven) {
  switch (uneven) {
    case Uneven::pad:
      return Tail::pad;
    case Uneven::drop:
      return Tail::drop;
    default:
      return Tail::keep;
  }
}

}  // namespace

SamplerOptions sampler_options(
    const RunConfig& config, const Dataset& train, const DataShard& shard) {
  SamplerOptions options;
  options.size = train.size;
  options.num_shards = shard.num_shards;
  options.shard = std::max<int64_t>(0, shard.shard);
  options.seed = static_cast<uint64_t>(config.training.seed);
  options.tail = tail_of(config.data.uneven);
  options.blocks = train.num_shares;
  if (config.training.divide_batch) {
    options.tail = Tail::keep;
    options.batch = samples_per_step(config, shard);
  }
  return options;
}

int64_t samples_per_step(const RunConfig& config, const DataShard& shard) {
  const auto& training = config.training;
  return training.batch_size * training.accumulate *
         (training.divide_batch ? 1 : shard.num_shards);
}

int64_t own_samples_per_step(const RunConfig& config, const DataShard& shard) {
  const int64_t all = samples_per_step(config, shard);
  return config.training.divide_batch
             ? chunk_of(all, shard.num_shards, shard.shard).count
             : all / shard.num_shards;
}

LoaderOptions training_loader_options(const RunConfig& config, const Assembly& parts) {
  LoaderOptions options = loader_options(config);
  options.micro_batches = config.training.accumulate;
  options.num_buffers = config.training.accumulate + 1;
  options.empty_batches = parts.statistics != nullptr;
  return options;
}

void check_shares(
    const RunConfig& config, const Dataset& train, const DataShard& shard,
    const Communicator& comm) {
  if (train.num_shares > 1 &&
      (shard.num_shards != train.num_shares || shard.shard != comm.rank())) {
    throw ConfigError(fmt::format(
        "[data] share scatter gives each of {} ranks a share, but with strategy {} "
        "{} of them read samples; use --share sampler",
        train.num_shares, name_of(config.strategy.kind), shard.num_shards));
  }
}

}  // namespace tandem
