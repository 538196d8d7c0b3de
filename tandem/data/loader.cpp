#include "tandem/data/loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/core/parallel.h"

namespace tandem {

namespace {

// Shuffled images lie in random places: a loop that only reads them spends three
// quarters of its time waiting for memory.
constexpr int64_t kImagesAhead = 4;

// The least number of pixels that a thread takes.
constexpr int64_t kPixelsOfAThread = 131'072;

void prefetch(const uint8_t* data, int64_t bytes) {
  constexpr int64_t kCacheLine = 64;
  for (int64_t offset = 0; offset < bytes; offset += kCacheLine) {
    __builtin_prefetch(data + offset);
  }
}

// A view costs an allocation; a full batch needs none.
at::Tensor first_rows(const at::Tensor& rows, int64_t count) {
  return count == rows.size(0) ? rows : rows.narrow(0, 0, count);
}

void check(const LoaderOptions& options, const SamplerOptions& sampler) {
  if (options.batch_size < 1) {
    throw ConfigError(
        "[data] a batch of " + std::to_string(options.batch_size) +
        " samples is impossible; set --batch-size to 1 or more");
  }
  if (options.micro_batches < 1) {
    throw ConfigError(
        "[data] a step needs a micro-batch; set --accumulate to 1 or more");
  }
  if (!(options.std > 0) || options.pad < 0) {
    throw ConfigError("[data] std must be positive and pad not negative; change --std");
  }
  const int64_t step = options.batch_size * options.micro_batches;
  if (sampler.batch > 0 && sampler.batch != step) {
    throw ConfigError(
        "[data] the sampler divides batches of " + std::to_string(sampler.batch) +
        " samples, and a step has " + std::to_string(step) +
        "; set SamplerOptions::batch to batch_size times micro_batches");
  }
}

// How many samples a micro-batch can have.
int64_t most_samples(const LoaderOptions& options, const SamplerOptions& sampler) {
  // The first shard's chunk is the largest, of whatever is divided.
  const int64_t chunk = chunk_of(sampler.batch, sampler.num_shards, 0).count;
  return sampler.batch > 0 ? (chunk + options.micro_batches - 1) / options.micro_batches
                           : options.batch_size;
}

}  // namespace

Loader::Loader(
    const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options)
    : dataset_(dataset),
      sampler_(sampler),
      options_(options),
      normalise_(options.mean, options.std) {
  check(options, sampler);
  sampler_.size = dataset.size;
  // What the data can fill: the size asked for may be far larger. Of a batch that is
  // divided, a shard may get more behind seek() than from the beginning.
  const int64_t whole = std::min(sampler_.batch, sampler_.size);
  const int64_t most = std::max(
      {int64_t{1}, shard_size(sampler_),
       chunk_of(whole, sampler_.num_shards, 0).count});
  const int64_t batch_size = std::min(most_samples(options, sampler), most);
  const int64_t num_buffers = std::clamp<int64_t>(options.num_buffers, 1, most + 1);
  for (int64_t i = 0; i < num_buffers; ++i) {
    Batch buffer;
    const int64_t border = 2 * options.pad;
    const auto where = options.images ? options.images->device : at::Device(at::kCPU);
    buffer.inputs = at::empty(
        {batch_size, dataset.channels, dataset.height + border, dataset.width + border},
        at::TensorOptions(at::kFloat).device(where));
    if (where.is_cpu()) {
      buffer.inputs.fill_(normalise_(0));
    }
    buffer.targets =
        at::empty({batch_size}, at::TensorOptions(at::kLong).device(where));
    buffer.samples = at::empty({batch_size}, at::kLong);
    buffers_.push_back(std::move(buffer));
  }
  if (options.images) {
    on_device_ = std::make_unique<DeviceBatches>(
        dataset_, options.images, normalise_, options.pad, batch_size);
  }
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
    if (on_device_) {
      on_device_->begin(indices_, places());
    }
  }
  step_ = 0;
  micro_ = 0;
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
  TANDEM_CHECK(epoch_ >= 0, "seek() comes before next()");
  const int64_t first = step_ * samples_per_step();
  const int64_t stride = options_.micro_batches;
  const int64_t in_step = own_count();
  // No shard has more samples than the first.
  const int64_t most =
      options_.empty_batches
          ? (global_count() + sampler_.num_shards - 1) / sampler_.num_shards
          : in_step;
  if (most <= micro_) {
    if (divides() && global_count() > 0) {
      micro_ = 0;
      ++step_;
    }
    return false;
  }
  const int64_t count = std::max<int64_t>(0, (in_step - micro_ + stride - 1) / stride);
  const Batch& buffer = buffers_[take_buffer()];
  int64_t* samples = buffer.samples.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    samples[i] = indices_[static_cast<size_t>(first + micro_ + i * stride)];
  }
  batch.inputs = first_rows(buffer.inputs, count);
  batch.targets = first_rows(buffer.targets, count);
  batch.samples = first_rows(buffer.samples, count);
  if (!on_device_) {
    fill(batch);
  } else if (count > 0) {
    on_device_->fill(
        step_ * options_.micro_batches + micro_, batch.samples, batch.inputs,
        batch.targets);
  }
  batch.first_position = position_of(sampler_, first + micro_);
  batch.position_stride = divides() ? stride : sampler_.num_shards * stride;
  batch.global_count = global_count();
  micro_ = (micro_ + 1) % stride;
  step_ += micro_ == 0 ? 1 : 0;
  return true;
}

size_t Loader::take_buffer() {
  const bool one_each = static_cast<int64_t>(buffers_.size()) >= options_.micro_batches;
  if (on_device_ && one_each) {
    return static_cast<size_t>(micro_);
  }
  return std::exchange(next_buffer_, (next_buffer_ + 1) % buffers_.size());
}

void Loader::fill(const Batch& batch) const {
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

std::vector<BatchPlace> Loader::places() const {
  std::vector<BatchPlace> places;
  for (int64_t step = 0; step < num_steps(); ++step) {
    for (int64_t micro = 0; micro < options_.micro_batches; ++micro) {
      BatchPlace place;
      place.first_index = step * samples_per_step() + micro;
      place.index_stride = options_.micro_batches;
      places.push_back(place);
    }
  }
  return places;
}

void Loader::gather(const int64_t* indices, int64_t count, float* out) const {
  const uint8_t* pixels = dataset_.pixels.data();
  const int64_t image_bytes = dataset_.image_bytes();
  const int64_t first = dataset_.first_held;
  const int64_t pad = options_.pad;
  // Without a border a plane is one long row: each end of a row costs a branch that the
  // CPU mispredicts.
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
