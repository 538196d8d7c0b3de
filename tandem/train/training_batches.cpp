#include "tandem/train/training_batches.h"

#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/train/agreement/start_checks.h"

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

// Returns the number of samples of all ranks in a step; the last step of an epoch may
// have fewer.
int64_t samples_of_all(const RunConfig& config, const DataShard& shard) {
  const auto& training = config.training;
  return training.batch_size * training.accumulate *
         (training.divide_batch ? 1 : shard.num_shards);
}

LoaderOptions training_loader_options(
    const RunConfig& config, const Dataset& train, const Assembly& parts,
    const Placement& placement) {
  LoaderOptions options = loader_options(config, train);
  options.augmentation = parse_augmentation(config.data.augment);
  options.random_starts = true;
  options.micro_batches = config.training.accumulate;
  options.num_buffers = config.training.accumulate + 1;
  options.empty_batches = parts.statistics != nullptr;
  if (parts.strategy->data_shard().shard >= 0) {
    use_device(options, train, placement);
  }
  return options;
}

}  // namespace

SamplerOptions sampler_options(
    const RunConfig& config, const Dataset& train, const DataShard& shard) {
  const int64_t seed = config.data.sampler_seed == DataOptions::kSeedOfRun
                           ? config.training.seed
                           : config.data.sampler_seed;
  SamplerOptions options;
  options.size = train.size;
  options.num_shards = shard.num_shards;
  options.shard = std::max<int64_t>(0, shard.shard);
  options.seed = static_cast<uint64_t>(seed);
  options.tail = tail_of(config.data.uneven);
  options.blocks = train.num_shares;
  if (config.training.divide_batch) {
    options.tail = Tail::keep;
    options.batch = samples_of_all(config, shard);
  }
  return options;
}

int64_t smallest_batch(
    const RunConfig& config, const Dataset& train, const DataShard& shard,
    int64_t first_position) {
  SamplerOptions options = sampler_options(config, train, shard);
  options.first_position = first_position;
  const int64_t micros = config.training.accumulate;
  int64_t smallest = 0;
  const auto add_step = [&](int64_t samples) {
    // The samples of a step are distributed to its micro-batches round-robin.
    const int64_t least = std::max(samples / micros, std::min<int64_t>(1, samples));
    smallest = smallest == 0 || least == 0 ? std::max(smallest, least)
                                           : std::min(smallest, least);
  };
  for (options.shard = 0; options.shard < options.num_shards; ++options.shard) {
    const int64_t samples = shard_size(options);
    const int64_t each =
        options.batch > 0
            ? chunk_of(options.batch, options.num_shards, options.shard).count
            : config.training.batch_size * micros;
    add_step(std::min(samples, each));
    add_step(each == 0 ? samples : samples % each);
  }
  return smallest;
}

int64_t sampler_epoch(const RunConfig& config, int64_t epoch) {
  return config.data.reshuffle ? epoch : 0;
}

void check_shares(
    const RunConfig& config, const Dataset& train, const DataShard& shard,
    const Communicator& comm) {
  if (train.num_shares > 1 &&
      (shard.num_shards != train.num_shares || shard.shard != comm.rank())) {
    throw ConfigError(fmt::format(
        "[data] share scatter gives each of {} ranks a share, but {} of them read "
        "samples with strategy {}; use --share sampler",
        train.num_shares, shard.num_shards, name_of(config.strategy.kind)));
  }
}

TrainingBatches::TrainingBatches(
    const RunConfig& config, const Dataset& train, const Assembly& parts,
    Communicator& comm, const Placement& placement)
    : config_(config),
      train_(train),
      comm_(comm),
      shard_(parts.strategy->data_shard()),
      needs_two_samples_(parts.needs_two_samples),
      loader_(
          train, sampler(), training_loader_options(config, train, parts, placement)),
      audit_(comm, sampler()),
      steps_per_epoch_(loader_.num_steps()) {}

SamplerOptions TrainingBatches::sampler() const {
  return sampler_options(config_, train_, shard_);
}

int64_t TrainingBatches::samples() const {
  return reads() ? shard_size(sampler()) : 0;
}

int64_t TrainingBatches::samples_per_step() const {
  return samples_of_all(config_, shard_);
}

void TrainingBatches::check(const Position& position) {
  SamplerOptions rest = sampler();
  rest.first_position = position.samples_in_epoch;
  loader_.seek(position.epoch, position.samples_in_epoch);
  check_same_steps(shard_size(rest), num_steps(), config_.data.uneven, comm_);
  if (position.step == 0 && num_steps() == 0) {
    throw ConfigError(fmt::format(
        "[data] {} on {} {} no step; use fewer ranks, or --uneven pad or join",
        counted(rest.size, "sample"), counted(rest.num_shards, "rank"),
        rest.size == 1 ? "makes" : "make"));
  }
  check_smallest_batch(position.samples_in_epoch);
}

void TrainingBatches::check_smallest_batch(int64_t first_position) const {
  if (needs_two_samples_.empty() ||
      smallest_batch(config_, train_, shard_, first_position) != 1) {
    return;
  }
  RunConfig other = config_;
  int64_t& size = other.training.batch_size;
  const auto fits = [&] { return smallest_batch(other, train_, shard_) > 1; };
  for (--size; size > 1 && !fits();) {
    --size;
  }
  for (size = size > 1 ? size : config_.training.batch_size + 1;
       size < train_.size && !fits();) {
    ++size;
  }
  throw ConfigError(fmt::format(
      "[data] a training batch has 1 sample ({} samples, batch size {}), but batch "
      "norm "
      "{} has 1 value per channel then, expected 2 or more; {}",
      train_.size, config_.training.batch_size, needs_two_samples_,
      fits() ? fmt::format("set --batch-size, for example to {}", size)
             : "add samples or use fewer ranks"));
}

void TrainingBatches::begin(const Position& position) {
  const int64_t order = sampler_epoch(config_, position.epoch);
  loader_.seek(position.epoch, position.samples_in_epoch, order);
  audit_.begin(position.epoch, order, position.samples_in_epoch);
}

std::vector<Batch> TrainingBatches::next() {
  std::vector<Batch> batches;
  Batch batch;
  while (reads() &&
         static_cast<int64_t>(batches.size()) < config_.training.accumulate &&
         loader_.next(batch)) {
    if (shard_.counted) {
      audit_.add(batch.samples);
    }
    batches.push_back(batch);
  }
  return batches;
}

int64_t TrainingBatches::after_step(int64_t samples_in_epoch) const {
  return std::min(samples_in_epoch + samples_per_step(), loader_.end_position());
}

}  // namespace tandem
