#include "tandem/data/loader.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/mapped_file.h"
#include "tandem/core/parallel.h"
#include "tandem/data/read_record.h"

namespace tandem {

namespace {

at::Tensor copy_of(const Samples& samples, int64_t count, at::Device device) {
  const auto type = samples.type == ElementType::int64 ? at::kLong : at::kByte;
  std::vector<int64_t> sizes = {count};
  if (!samples.shape.empty()) {
    sizes.push_back(samples.numel());
  }
  return at::from_blob(const_cast<uint8_t*>(samples.bytes.data()), sizes, type)
      .to(device);
}

// Number of samples to prefetch. Shuffled samples have random addresses, so without
// prefetching a loop spends three quarters of its time waiting for memory.
constexpr int64_t kSamplesAhead = 4;

// Minimum number of elements for a thread.
constexpr int64_t kElementsOfAThread = 131'072;

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
    throw ConfigError(fmt::format(
        "[data] batch_size is {}, expected 1 or more; change --batch-size",
        options.batch_size));
  }
  if (options.micro_batches < 1) {
    throw ConfigError(fmt::format(
        "[data] micro_batches is {}, expected 1 or more; change --accumulate",
        options.micro_batches));
  }
  const int64_t step = options.batch_size * options.micro_batches;
  if (sampler.batch > 0 && sampler.batch != step) {
    throw ConfigError(fmt::format(
        "[data] SamplerOptions::batch is {}, expected {} (batch_size times "
        "micro_batches); change it",
        sampler.batch, step));
  }
}

// Returns whether a target is this class.
bool has_class(const Dataset& data, int64_t label) {
  const bool is_byte = data.targets.type == ElementType::uint8;
  if (!data.has_classes() ||
      (is_byte && (label < 0 || label > std::numeric_limits<uint8_t>::max()))) {
    return false;
  }
  const auto count =
      static_cast<int64_t>(data.targets.bytes.size() / size_of(data.targets.type));
  for (int64_t i = 0; i < count; ++i) {
    if (data.targets.integer(i) == label) {
      return true;
    }
  }
  return false;
}

// Returns the global position of the sample number `i` of a batch.
int64_t position_in(const Batch& batch, int64_t i) {
  return batch.first_position + i * batch.position_stride;
}

// Returns the number of targets of a sample that count in the loss.
int64_t targets_per_sample(const Dataset& data) {
  return data.has_classes() ? data.targets.numel() : 1;
}

// Returns the largest number of samples in a micro-batch.
int64_t most_samples(const LoaderOptions& options, const SamplerOptions& sampler) {
  // The chunk of the first shard is always the largest.
  const int64_t chunk = chunk_of(sampler.batch, sampler.num_shards, 0).count;
  return sampler.batch > 0 ? (chunk + options.micro_batches - 1) / options.micro_batches
                           : options.batch_size;
}

// Returns why samples of this kind are not kept on a device; "" if they are.
std::string why_not_kept(const LoaderOptions& options, const Dataset& data) {
  if (!data.has_images() || !data.has_classes() || !data.targets.shape.empty() ||
      options.mean.size() != 1) {
    return "only images with one class each and one mean are kept on a device";
  }
  return options.augmentation.any() ? "--augment changes them"
         : data.places              ? "--limit selects some samples of a mapped file"
                                    : "";
}

}  // namespace

std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement) {
  const auto held =
      static_cast<int64_t>(data.targets.bytes.size()) / data.targets.sample_bytes();
  const auto bytes =
      static_cast<int64_t>(data.inputs.bytes.size() + data.targets.bytes.size());
  if (!placement.is_elsewhere() || held == 0 ||
      (placement.free_bytes && bytes > placement.free_bytes() / 2)) {
    return nullptr;
  }
  return std::make_shared<DeviceImages>(DeviceImages{
      copy_of(data.inputs, held, *placement.device),
      copy_of(data.targets, held, *placement.device)});
}

void use_device(
    LoaderOptions& options, const Dataset& data, const Placement& placement) {
  if (!placement.is_elsewhere()) {
    return;
  }
  std::string& why_not = options.why_not_on_device;
  why_not = why_not_kept(options, data);
  options.images = why_not.empty() ? copy_to_device(data, placement) : nullptr;
  if (why_not.empty() && !options.images) {
    why_not =
        "they need more than half of the free memory of " + placement.device->str();
  }
  options.pinned = placement.device->is_cuda() && !options.images;
}

Loader::Loader(
    const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options)
    : dataset_(dataset),
      sampler_(sampler),
      options_(options),
      inputs_(dataset_.inputs),
      targets_(dataset_.targets),
      converter_(dataset, options),
      target_scale_(options.target_mean, options.target_std, dataset),
      read_ahead_rule_(num_major_faults()),
      has_ignored_(has_class(dataset, options.ignore_index)) {
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
      table_.data_ptr<float>()[pixel] =
          converter_.pixel_normaliser()(static_cast<uint8_t>(pixel));
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
  buffer.inputs = converter_.make_batch(count, memory);
  std::vector<int64_t> sizes = {count};
  const auto& shape = dataset_.targets.shape;
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  buffer.targets =
      at::empty(sizes, memory.dtype(dataset_.has_classes() ? at::kLong : at::kFloat));
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

void Loader::seek(int64_t epoch, int64_t first_position, std::optional<int64_t> order) {
  const int64_t new_order = order.value_or(epoch);
  const bool is_new = new_order != order_ || first_position != sampler_.first_position;
  epoch_ = epoch;
  if (is_new) {
    sampler_.first_position = first_position;
    indices_ = order_of_shard(sampler_, new_order);
    order_ = new_order;
    if (options_.images) {
      held_indices_ =
          at::from_blob(
              indices_.data(), {static_cast<int64_t>(indices_.size())}, at::kLong)
              .sub(dataset_.first_held)
              .to(options_.images->pixels.device());
    }
  }
  if (is_new || starts_at_random()) {
    count_ignored();
  }
  step_ = 0;
  micro_ = 0;
  if (dataset_.inputs.is_mapped) {
    read_ahead(0, samples_per_step());
  }
}

int64_t Loader::ignored_in(int64_t sample, int64_t position) const {
  const int64_t first =
      (find(targets_, sample, position) - targets_.bytes) / targets_.element_bytes;
  int64_t count = 0;
  for (int64_t at = first; at < first + targets_.numel; ++at) {
    count += dataset_.targets.integer(at) == options_.ignore_index ? 1 : 0;
  }
  return count;
}

void Loader::count_ignored() {
  if (!has_ignored_) {
    return;
  }
  SamplerOptions all = sampler_;
  all.num_shards = 1;
  all.shard = 0;
  all.tail = Tail::keep;
  all.batch = 0;
  all.first_position = 0;
  const auto order = order_of_shard(all, order_);
  ignored_.assign(static_cast<size_t>(num_steps()), 0);
  for (int64_t at = sampler_.first_position; at < end_position(); ++at) {
    const auto step = (at - sampler_.first_position) / samples_of_all();
    // Padding repeats samples from the front of the order.
    ignored_[static_cast<size_t>(step)] +=
        ignored_in(order[static_cast<size_t>(at % sampler_.size)], at);
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
  batch.first_position = position_of(sampler_, first);
  batch.position_stride = divides() ? stride : sampler_.num_shards * stride;
  batch.step_position = sampler_.first_position + step_ * samples_of_all();
  int64_t* samples = batch.samples.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    samples[i] = indices_[static_cast<size_t>(first + i * stride)];
    batch.ignored += has_ignored_ ? ignored_in(samples[i], position_in(batch, i)) : 0;
  }
  if (options_.images) {
    make_on_device(batch, first, stride);
  } else {
    fill_on_cpu(batch);
  }
  const int64_t ignored = has_ignored_ ? ignored_[static_cast<size_t>(step_)] : 0;
  batch.global_count = global_count() * targets_per_sample(dataset_) - ignored;
  // Shards of a divided batch may have different sizes.
  record_read(sampler_, order_, divides() ? 0 : samples_per_step());
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
  std::vector<int64_t> sizes = dataset_.inputs.shape;
  sizes.insert(sizes.begin(), count);
  batch.inputs = table_.index_select(0, pixels.view(-1).to(at::kInt)).view(sizes);
  if (options_.pad > 0) {
    const int64_t pad = options_.pad;
    batch.inputs = at::constant_pad_nd(
        batch.inputs, {pad, pad, pad, pad}, converter_.pixel_normaliser()(0));
  }
  batch.targets = options_.images->labels.index_select(0, held).to(at::kLong);
}

void Loader::fill_on_cpu(const Batch& batch) {
  const int64_t count = batch.count();
  copy_targets(batch);
  if (dataset_.inputs.is_mapped && read_ahead_rule_.update(num_major_faults())) {
    // Micro-batches have samples from the whole step.
    const int64_t next = (step_ + 1) * samples_per_step() + micro_ * most_samples_;
    read_ahead(next, next + most_samples_);
  }
  const int64_t elements = std::max<int64_t>(1, batch.inputs.stride(0));
  parallel_for(
      0, count, std::max<int64_t>(1, kElementsOfAThread / elements),
      [&](int64_t begin, int64_t end) { convert(batch, begin, end); });
}

Loader::Part::Part(const Samples& samples)
    : bytes(samples.bytes.data()),
      numel(samples.numel()),
      element_bytes(static_cast<int64_t>(size_of(samples.type))) {}

const uint8_t* Loader::find(const Part& part, int64_t sample, int64_t position) const {
  if (!starts_at_random()) {
    return part.bytes + dataset_.place_of(sample) * part.numel * part.element_bytes;
  }
  const int64_t num_starts = (dataset_.size - 1) * part.numel + 1;
  return part.bytes +
         draw_start(num_starts, sampler_.seed, epoch_, position) * part.element_bytes;
}

void Loader::copy_targets(const Batch& batch) const {
  const int64_t* samples = batch.samples.data_ptr<int64_t>();
  const bool widens = dataset_.targets.type == ElementType::uint8;
  const int64_t bytes =
      targets_.numel * (widens ? int64_t{sizeof(int64_t)} : targets_.element_bytes);
  auto* to = static_cast<uint8_t*>(batch.targets.data_ptr());
  for (int64_t i = 0; i < batch.count(); ++i, to += bytes) {
    const uint8_t* from = find(targets_, samples[i], position_in(batch, i));
    if (widens) {
      std::copy_n(from, targets_.numel, reinterpret_cast<int64_t*>(to));
    } else {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  }
  target_scale_.normalize(batch.targets);
}

void Loader::convert(const Batch& batch, int64_t begin, int64_t end) const {
  const int64_t* samples = batch.samples.data_ptr<int64_t>();
  void* inputs = batch.inputs.data_ptr();
  const auto address = [&](int64_t i) {
    return find(inputs_, samples[i], position_in(batch, i));
  };
  const int64_t sample_bytes = inputs_.numel * inputs_.element_bytes;
  const bool augments = options_.augmentation.any();
  AugmentationDraw draw;
  for (int64_t i = begin; i < end; ++i) {
    if (i + kSamplesAhead < end) {
      prefetch(address(i + kSamplesAhead), sample_bytes);
    }
    if (augments) {
      draw = draw_augmentation(
          options_.augmentation, sampler_.seed, epoch_, position_in(batch, i));
    }
    if (!converter_.convert(address(i), augments ? &draw : nullptr, inputs, i)) {
      fail_not_finite(dataset_, samples[i]);
    }
  }
}

void Loader::read_ahead(int64_t first, int64_t end) const {
  end = std::min(end, static_cast<int64_t>(indices_.size()));
  for (int64_t i = first; i < end; ++i) {
    const int64_t sample = indices_[static_cast<size_t>(i)];
    tandem::read_ahead(
        find(inputs_, sample, position_of(sampler_, i)),
        static_cast<size_t>(inputs_.numel * inputs_.element_bytes));
  }
}

}  // namespace tandem
