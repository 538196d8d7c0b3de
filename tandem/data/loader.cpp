#include "tandem/data/loader.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/core/parallel.h"

namespace tandem {

namespace {

// Number of images to prefetch. Shuffled images have random addresses, so without
// prefetching a loop spends three quarters of its time waiting for memory.
constexpr int64_t kImagesAhead = 4;

// Minimum number of pixels for a thread.
constexpr int64_t kPixelsOfAThread = 131'072;

void prefetch(const uint8_t* data, int64_t bytes) {
  constexpr int64_t kCacheLine = 64;
  for (int64_t offset = 0; offset < bytes; offset += kCacheLine) {
    __builtin_prefetch(data + offset);
  }
}

// Returns the first rows. For a full batch, returns `rows` itself, because allocating a
// view takes time.
at::Tensor first_rows(const at::Tensor& rows, int64_t count) {
  return count == rows.size(0) ? rows : rows.narrow(0, 0, count);
}

void check(const LoaderOptions& options, const SamplerOptions& sampler) {
  if (options.batch_size < 1) {
    throw ConfigError(
        "[data] batch_size is " + std::to_string(options.batch_size) +
        ", expected 1 or more; change --batch-size");
  }
  if (options.micro_batches < 1) {
    throw ConfigError(
        "[data] micro_batches is " + std::to_string(options.micro_batches) +
        ", expected 1 or more; change --accumulate");
  }
  if (!(options.std > 0) || options.pad < 0) {
    throw ConfigError(fmt::format(
        "[data] std is {} and pad {}, expected std > 0 and pad >= 0; change --std or "
        "pad",
        options.std, options.pad));
  }
  const int64_t step = options.batch_size * options.micro_batches;
  if (sampler.batch > 0 && sampler.batch != step) {
    throw ConfigError(
        "[data] SamplerOptions::batch is " + std::to_string(sampler.batch) +
        ", expected " + std::to_string(step) +
        " (batch_size times micro_batches); change it");
  }
}

// Returns the largest number of samples in a micro-batch.
int64_t most_samples(const LoaderOptions& options, const SamplerOptions& sampler) {
  // The chunk of the first shard is always the largest.
  const int64_t chunk = chunk_of(sampler.batch, sampler.num_shards, 0).count;
  return sampler.batch > 0 ? (chunk + options.micro_batches - 1) / options.micro_batches
                           : options.batch_size;
}

}  // namespace

void use_device(
    LoaderOptions& options, const Dataset& data, const Placement& placement) {
  options.images = copy_to_device(data, placement);
  options.pinned = placement.device && placement.device->is_cuda() && !options.images;
}

Loader::Loader(
    const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options)
    : dataset_(dataset),
      sampler_(sampler),
      options_(options),
      normalise_(options.mean, options.std) {
  check(options, sampler);
  sampler_.size = dataset.size;
  // Largest number of samples of this shard in a batch. batch_size may be far larger
  // than the data set. If batches are divided, a shard may get more samples after a
  // seek() than from the start of the epoch.
  const int64_t whole = std::min(sampler_.batch, sampler_.size);
  const int64_t most = std::max(
      {int64_t{1}, shard_size(sampler_),
       chunk_of(whole, sampler_.num_shards, 0).count});
  most_samples_ = std::min(most_samples(options, sampler), most);
  const int64_t num_buffers = std::clamp<int64_t>(options.num_buffers, 1, most + 1);
  for (int64_t i = 0; i < num_buffers; ++i) {
    buffers_.push_back(options.pinned ? Batch() : buffer_of(most_samples_));
  }
  if (options.images) {
    table_ = at::empty({256}, at::kFloat);
    for (int pixel = 0; pixel < 256; ++pixel) {
      table_.data_ptr<float>()[pixel] = normalise_(static_cast<uint8_t>(pixel));
    }
    table_ = table_.to(options.images->pixels.device());
  }
}

Batch Loader::buffer_of(int64_t count) const {
  const auto memory =
      at::TensorOptions(at::kCPU).pinned_memory(options_.pinned && count > 0);
  Batch buffer;
  buffer.samples = at::empty({count}, at::kLong);
  if (options_.images) {
    return buffer;
  }
  const int64_t border = 2 * options_.pad;
  buffer.inputs = at::empty(
      {count, dataset_.channels, dataset_.height + border, dataset_.width + border},
      memory.dtype(at::kFloat));
  buffer.inputs.fill_(normalise_(0));
  buffer.targets = at::empty({count}, memory.dtype(at::kLong));
  return buffer;
}

int64_t Loader::num_batches() const {
  const int64_t size = shard_size(sampler_);
  const int64_t each = samples_per_step();
  const int64_t steps =
      divides() ? (end_position() - sampler_.first_position) / sampler_.batch
                : size / each;
  return steps * std::min(each, options_.micro_batches) +
         std::min(size - steps * each, options_.micro_batches);
}

int64_t Loader::num_steps() const {
  const int64_t samples = end_position() - sampler_.first_position;
  return (samples + samples_of_all() - 1) / samples_of_all();
}

void Loader::seek(int64_t epoch, int64_t first_position) {
  if (epoch != epoch_ || first_position != sampler_.first_position) {
    sampler_.first_position = first_position;
    indices_ = shard_indices(sampler_, epoch);
    epoch_ = epoch;
    count_ignored();
    if (options_.images) {
      held_indices_ =
          at::from_blob(
              indices_.data(), {static_cast<int64_t>(indices_.size())}, at::kLong)
              .sub(dataset_.first_held)
              .to(options_.images->pixels.device());
    }
  }
  step_ = 0;
  micro_ = 0;
}

bool Loader::is_ignored(int64_t sample) const {
  return dataset_.labels[static_cast<size_t>(sample - dataset_.first_held)] ==
         options_.ignore_index;
}

void Loader::count_ignored() {
  if (options_.ignore_index < 0 ||
      options_.ignore_index > std::numeric_limits<uint8_t>::max()) {
    return;
  }
  SamplerOptions all = sampler_;
  all.num_shards = 1;
  all.shard = 0;
  all.tail = Tail::keep;
  all.batch = 0;
  all.first_position = 0;
  const auto order = shard_indices(all, epoch_);
  ignored_.assign(static_cast<size_t>(num_steps()), 0);
  for (int64_t at = sampler_.first_position; at < end_position(); ++at) {
    const auto step = (at - sampler_.first_position) / samples_of_all();
    // Padding repeats samples from the front of the order.
    if (is_ignored(order[static_cast<size_t>(at % sampler_.size)])) {
      ++ignored_[static_cast<size_t>(step)];
    }
  }
}

int64_t Loader::samples_of_all() const {
  return divides() ? sampler_.batch : samples_per_step() * sampler_.num_shards;
}

int64_t Loader::samples_per_step() const {
  return divides() ? chunk_of(sampler_.batch, sampler_.num_shards, sampler_.shard).count
                   : options_.batch_size * options_.micro_batches;
}

int64_t Loader::global_count() const {
  const int64_t step = samples_of_all();
  return std::min(step, end_position() - sampler_.first_position - step_ * step);
}

int64_t Loader::own_count() const {
  if (divides()) {
    const int64_t count = std::max<int64_t>(0, global_count());
    return chunk_of(count, sampler_.num_shards, sampler_.shard).count;
  }
  const auto total = static_cast<int64_t>(indices_.size());
  return std::min(samples_per_step(), total - step_ * samples_per_step());
}

bool Loader::next(Batch& batch) {
  TANDEM_CHECK(epoch_ >= 0, "next() was called before seek()");
  if (!has_micro_batch()) {
    if (divides() && global_count() > 0) {
      micro_ = 0;
      ++step_;
    }
    return false;
  }
  // The samples of a step are distributed to its micro-batches round-robin.
  const int64_t first = step_ * samples_per_step() + micro_;
  const int64_t stride = options_.micro_batches;
  const int64_t count =
      std::max<int64_t>(0, (own_count() - micro_ + stride - 1) / stride);
  batch = take_buffer(count);
  int64_t* samples = batch.samples.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    samples[i] = indices_[static_cast<size_t>(first + i * stride)];
    batch.ignored += !ignored_.empty() && is_ignored(samples[i]) ? 1 : 0;
  }
  if (options_.images) {
    make_on_device(batch, first, stride);
  } else {
    fill_on_cpu(batch);
  }
  batch.first_position = position_of(sampler_, first);
  batch.position_stride = divides() ? stride : sampler_.num_shards * stride;
  batch.global_count =
      global_count() - (ignored_.empty() ? 0 : ignored_[static_cast<size_t>(step_)]);
  micro_ = (micro_ + 1) % stride;
  step_ += micro_ == 0 ? 1 : 0;
  return true;
}

bool Loader::has_micro_batch() const {
  // With empty_batches, every shard has as many micro-batches as the first shard, which
  // has the most samples.
  const int64_t samples =
      options_.empty_batches
          ? (global_count() + sampler_.num_shards - 1) / sampler_.num_shards
          : own_count();
  return micro_ < samples;
}

Batch Loader::take_buffer(int64_t count) {
  // A copy to the device may still read the last batch's memory. LibTorch's allocator
  // of pinned memory waits for such copies before it reuses memory.
  if (options_.pinned) {
    return buffer_of(count);
  }
  const auto& buffer =
      buffers_[std::exchange(next_buffer_, (next_buffer_ + 1) % buffers_.size())];
  Batch batch;
  batch.samples = first_rows(buffer.samples, count);
  if (!options_.images) {
    batch.inputs = first_rows(buffer.inputs, count);
    batch.targets = first_rows(buffer.targets, count);
  }
  return batch;
}

void Loader::make_on_device(Batch& batch, int64_t first, int64_t stride) const {
  const int64_t count = batch.samples.size(0);
  const auto held = held_indices_.slice(0, first, first + count * stride, stride);
  const auto pixels = options_.images->pixels.index_select(0, held);
  batch.inputs = table_.index_select(0, pixels.view(-1).to(at::kInt))
                     .view({count, dataset_.channels, dataset_.height, dataset_.width});
  if (options_.pad > 0) {
    const int64_t pad = options_.pad;
    batch.inputs =
        at::constant_pad_nd(batch.inputs, {pad, pad, pad, pad}, normalise_(0));
  }
  batch.targets = options_.images->labels.index_select(0, held).to(at::kLong);
}

void Loader::fill_on_cpu(const Batch& batch) const {
  const int64_t count = batch.count();
  const int64_t* samples = batch.samples.data_ptr<int64_t>();
  int64_t* targets = batch.targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    targets[i] = dataset_.labels[static_cast<size_t>(samples[i] - dataset_.first_held)];
  }
  auto* inputs = batch.inputs.data_ptr<float>();
  const int64_t image = batch.inputs.stride(0);
  parallel_for(
      0, count, std::max<int64_t>(1, kPixelsOfAThread / image),
      [&](int64_t begin, int64_t end) {
        gather(samples + begin, end - begin, inputs + begin * image);
      });
}

void Loader::gather(const int64_t* indices, int64_t count, float* out) const {
  const uint8_t* pixels = dataset_.pixels.data();
  const int64_t image_bytes = dataset_.image_bytes();
  const int64_t first = dataset_.first_held;
  const int64_t pad = options_.pad;
  // Without padding, a plane is processed as one long row, because the CPU mispredicts
  // a branch at the end of each row.
  const int64_t rows = pad == 0 ? 1 : dataset_.height;
  const int64_t columns = pad == 0 ? dataset_.height * dataset_.width : dataset_.width;
  const int64_t out_width = dataset_.width + 2 * pad;
  const int64_t plane = (dataset_.height + 2 * pad) * out_width;
  for (int64_t i = 0; i < count; ++i) {
    if (i + kImagesAhead < count) {
      prefetch(pixels + (indices[i + kImagesAhead] - first) * image_bytes, image_bytes);
    }
    const uint8_t* from = pixels + (indices[i] - first) * image_bytes;
    for (int64_t channel = 0; channel < dataset_.channels; ++channel) {
      float* to =
          out + (i * dataset_.channels + channel) * plane + pad * out_width + pad;
      for (int64_t row = 0; row < rows; ++row) {
        normalise_.row(from, columns, to);
        from += columns;
        to += out_width;
      }
    }
  }
}

}  // namespace tandem
