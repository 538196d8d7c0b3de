#include "tandem/data/distributed_sampler.h"

#include <ATen/core/ivalue.h>
#include <fmt/core.h>
#include <torch/serialize/archive.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/data/read_record.h"

namespace tandem {

DistributedSampler::DistributedSampler(const SamplerOptions& options)
    : state_(std::make_shared<State>()) {
  if (options.batch != 0) {
    throw ConfigError(fmt::format(
        "[data] batch is {}, expected 0, since a loader chooses the batch size; remove "
        "it",
        options.batch));
  }
  state_->options = options;
  set_epoch(0, options.first_position);
}

void DistributedSampler::set_epoch(int64_t epoch, int64_t first_position) {
  SamplerOptions options = state_->options;
  options.first_position = first_position;
  state_->indices = order_of_shard(options, epoch);
  state_->options = options;
  state_->epoch = epoch;
  state_->used = 0;
}

int64_t DistributedSampler::epoch() const {
  return state_->epoch;
}

int64_t DistributedSampler::size() const {
  return static_cast<int64_t>(state_->indices.size());
}

int64_t DistributedSampler::position() const {
  const auto& options = state_->options;
  return options.first_position +
         static_cast<int64_t>(state_->used) * options.num_shards;
}

void DistributedSampler::reset(torch::optional<size_t> new_size) {
  if (new_size.has_value()) {
    state_->options.size = static_cast<int64_t>(*new_size);
    set_epoch(state_->epoch, state_->options.first_position);
  }
  state_->used = 0;
}

torch::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  const auto& indices = state_->indices;
  const size_t count = std::min(batch_size, indices.size() - state_->used);
  if (count == 0) {
    return {};
  }
  const auto first = indices.begin() + static_cast<std::ptrdiff_t>(state_->used);
  state_->used += count;
  record_read(state_->options, state_->epoch, static_cast<int64_t>(batch_size));
  return std::vector<size_t>(first, first + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", at::IValue(epoch()));
  archive.write("position", at::IValue(position()));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  at::IValue epoch;
  at::IValue position;
  archive.read("epoch", epoch);
  archive.read("position", position);
  set_epoch(epoch.toInt(), position.toInt());
}

}  // namespace tandem
