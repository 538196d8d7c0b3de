#include "tandem/data/loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

namespace {

std::vector<float> normalisation_table(const LoaderOptions& options) {
  std::vector<float> table(256);
  const auto mean = static_cast<float>(options.mean);
  const auto std = static_cast<float>(options.std);
  for (size_t pixel = 0; pixel < table.size(); ++pixel) {
    table[pixel] = (static_cast<float>(pixel) / 255.0f - mean) / std;
  }
  return table;
}

// Shuffled images lie in random places: a loop that only reads them waits for
// memory three quarters of its time.
constexpr int64_t kImagesAhead = 2;

void prefetch(const uint8_t* data, int64_t bytes) {
  constexpr int64_t kCacheLine = 64;
  for (int64_t offset = 0; offset < bytes; offset += kCacheLine) {
    __builtin_prefetch(data + offset);
  }
}

void check(const LoaderOptions& options) {
  if (options.batch_size < 1) {
    throw ConfigError(
        "[data] a batch of " + std::to_string(options.batch_size) +
        " samples cannot be; set --batch-size to 1 or more");
  }
  if (!(options.std > 0) || options.pad < 0) {
    throw ConfigError("[data] std must be positive and pad not negative; change --std");
  }
}

}  // namespace

Loader::Loader(
    const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options)
    : dataset_(dataset), sampler_(sampler), options_(options) {
  check(options);
  sampler_.size = dataset.size;
  num_batches_ = (shard_size(sampler_) + options.batch_size - 1) / options.batch_size;
  normalised_ = normalisation_table(options);
  for (int64_t i = 0; i < std::max<int64_t>(1, options.num_buffers); ++i) {
    Batch buffer;
    const int64_t border = 2 * options.pad;
    buffer.inputs = at::empty(
        {options.batch_size, dataset.channels, dataset.height + border,
         dataset.width + border},
        at::kFloat);
    buffer.inputs.fill_(normalised_[0]);
    buffer.targets = at::empty({options.batch_size}, at::kLong);
    buffers_.push_back(std::move(buffer));
  }
}

void Loader::seek(int64_t epoch, int64_t batch) {
  if (epoch != epoch_) {
    indices_ = shard_indices(sampler_, epoch);
    epoch_ = epoch;
  }
  batch_ = batch;
}

bool Loader::next(Batch& batch) {
  TANDEM_CHECK(epoch_ >= 0, "seek() comes before next()");
  if (batch_ >= num_batches_) {
    return false;
  }
  const int64_t first = batch_ * options_.batch_size;
  const auto total = static_cast<int64_t>(indices_.size());
  const int64_t count = std::min(options_.batch_size, total - first);
  const Batch& buffer = buffers_[next_buffer_];
  next_buffer_ = (next_buffer_ + 1) % buffers_.size();
  const int64_t* indices = indices_.data() + first;
  gather(indices, count, buffer.inputs.data_ptr<float>());
  int64_t* targets = buffer.targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    targets[i] = (*dataset_.labels)[static_cast<size_t>(indices[i])];
  }
  batch.inputs = buffer.inputs.narrow(0, 0, count);
  batch.targets = buffer.targets.narrow(0, 0, count);
  batch.first_position = position_of(sampler_, first);
  batch.position_stride = sampler_.num_shards;
  batch.global_count = global_count(first);
  ++batch_;
  return true;
}

int64_t Loader::global_count(int64_t first) const {
  int64_t total = 0;
  SamplerOptions other = sampler_;
  for (other.shard = 0; other.shard < sampler_.num_shards; ++other.shard) {
    total += std::clamp<int64_t>(shard_size(other) - first, 0, options_.batch_size);
  }
  return total;
}

void Loader::gather(const int64_t* indices, int64_t count, float* out) const {
  const float* table = normalised_.data();
  const uint8_t* pixels = dataset_.pixels->data();
  const int64_t image_bytes = dataset_.image_bytes();
  const int64_t pad = options_.pad;
  // Without a border a plane is one long row: each end of a short one costs a
  // branch that the CPU guesses wrong.
  const int64_t rows = pad == 0 ? 1 : dataset_.height;
  const int64_t columns = pad == 0 ? dataset_.height * dataset_.width : dataset_.width;
  const int64_t out_width = dataset_.width + 2 * pad;
  const int64_t plane = (dataset_.height + 2 * pad) * out_width;
  for (int64_t i = 0; i < count; ++i) {
    if (i + kImagesAhead < count) {
      prefetch(pixels + indices[i + kImagesAhead] * image_bytes, image_bytes);
    }
    const uint8_t* from = pixels + indices[i] * image_bytes;
    for (int64_t channel = 0; channel < dataset_.channels; ++channel) {
      float* to =
          out + (i * dataset_.channels + channel) * plane + pad * out_width + pad;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          to[column] = table[from[column]];
        }
        from += columns;
        to += out_width;
      }
    }
  }
}

}  // namespace tandem
