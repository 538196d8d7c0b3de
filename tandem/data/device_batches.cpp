#include "tandem/data/device_batches.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <utility>

namespace tandem {

namespace {

constexpr int64_t kWordBytes = sizeof(int64_t);

at::Tensor table_of(const Normaliser& normalise) {
  auto table = at::empty({256}, at::kFloat);
  for (int value = 0; value < 256; ++value) {
    table.data_ptr<float>()[value] = normalise(static_cast<uint8_t>(value));
  }
  return table;
}

at::Tensor words_of(const std::vector<BatchPlace>& places, at::Device device) {
  const auto rows = static_cast<int64_t>(places.size());
  constexpr int64_t kWords = sizeof(BatchPlace) / sizeof(int64_t);
  return at::from_blob(
             const_cast<BatchPlace*>(places.data()), {rows, kWords}, at::kLong)
      .to(device);
}

}  // namespace

DeviceBatches::DeviceBatches(
    const Dataset& data, std::shared_ptr<const DeviceImages> images,
    const Normaliser& normalise, int64_t pad, int64_t batch_size)
    : data_(data), images_(std::move(images)), batch_size_(batch_size) {
  const at::Device device = images_->device;
  source_.table = table_of(normalise).to(device);
  source_.channels = data.channels;
  source_.height = data.height;
  source_.width = data.width;
  source_.pad = pad;
  if (images_->are_there()) {
    source_.pixels = images_->pixels;
    source_.labels = images_->labels;
    source_.first_held = data.first_held;
    return;
  }
  const int64_t all = batch_size * (data.image_bytes() + 1);
  const int64_t whole_words = (all + kWordBytes - 1) / kWordBytes * kWordBytes;
  source_.indices = at::arange(batch_size, at::kLong).to(device);
  for (auto& [bytes, source] : sent_) {
    bytes = at::empty({whole_words}, at::TensorOptions(at::kByte).device(device));
    source = source_;
    source.pixels = bytes.narrow(0, 0, batch_size * data.image_bytes());
    source.labels = bytes.narrow(0, batch_size * data.image_bytes(), batch_size);
  }
  copies_ = images_->kernels->copy_stream();
  places_ = words_of({BatchPlace()}, device);
}

// What an epoch needs goes up at once: its batches wait for nothing.
void DeviceBatches::begin(
    const std::vector<int64_t>& samples, const std::vector<BatchPlace>& places) {
  if (images_->are_there()) {
    const auto count = static_cast<int64_t>(samples.size());
    source_.indices =
        at::from_blob(const_cast<int64_t*>(samples.data()), {count}, at::kLong)
            .to(images_->device);
    places_ = words_of(places, images_->device);
  }
}

void DeviceBatches::fill(
    int64_t number, const at::Tensor& samples, const at::Tensor& inputs,
    const at::Tensor& targets) {
  const DeviceKernels& kernels = *images_->kernels;
  if (images_->are_there()) {
    kernels.gather_batch(source_, places_[number], inputs, targets);
    return;
  }
  Sent& sent = sent_[next_];
  copies_->copy(bytes_of(samples), sent.bytes, next_);
  kernels.gather_batch(sent.source, places_[0], inputs, targets);
  copies_->release(next_);
  next_ = (next_ + 1) % sent_.size();
}

// In main memory of their own: another batch's may still be on their way.
at::Tensor DeviceBatches::bytes_of(const at::Tensor& samples) const {
  const auto words = images_->kernels->host_words(sent_[0].bytes.numel() / kWordBytes);
  auto* const pixels = reinterpret_cast<uint8_t*>(words.data_ptr<int64_t>());
  uint8_t* const labels = pixels + batch_size_ * data_.image_bytes();
  const int64_t image = data_.image_bytes();
  const auto* sample = samples.data_ptr<int64_t>();
  for (int64_t i = 0; i < samples.numel(); ++i) {
    const int64_t held = sample[i] - data_.first_held;
    std::memcpy(
        pixels + i * image, data_.pixels.data() + held * image,
        static_cast<size_t>(image));
    labels[i] = data_.labels[static_cast<size_t>(held)];
  }
  return words.view(at::kByte);
}

}  // namespace tandem
