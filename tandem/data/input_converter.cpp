#include "tandem/data/input_converter.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/random.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr int64_t kMostCrop = 1'024;

uint64_t random_bits(uint64_t seed, int64_t epoch, int64_t position) {
  const uint64_t of_epoch = mix_bits(mix_bits(seed) ^ static_cast<uint64_t>(epoch));
  return mix_bits(of_epoch ^ static_cast<uint64_t>(position));
}

// Returns a number from -most to `most`, from 31 random bits.
int64_t offset_of(uint64_t bits, int64_t most) {
  const auto count = static_cast<uint64_t>(2 * most + 1);
  return static_cast<int64_t>(((bits & 0x7fffffff) * count) >> 31) - most;
}

// Returns whether all numbers are finite. Uses integers, because GCC does not vectorize
// comparisons of floating-point numbers here.
bool are_finite(const float* numbers, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t infinite = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, numbers + i, sizeof(bits));
    infinite |= static_cast<uint32_t>((bits & kExponent) == kExponent);
  }
  return infinite == 0;
}

}  // namespace

Augmentation parse_augmentation(const std::string& text) {
  constexpr const char* kCrop = "crop:";
  Augmentation augmentation;
  for (const auto& word : split(text, ',')) {
    const bool is_crop = word.rfind(kCrop, 0) == 0;
    const auto pixels =
        is_crop ? parse_number<int64_t>(word.substr(std::string(kCrop).size()))
                : std::nullopt;
    if (word == "flip") {
      augmentation.flip = true;
    } else if (pixels && *pixels >= 1 && *pixels <= kMostCrop) {
      augmentation.crop = *pixels;
    } else {
      throw ConfigError(fmt::format(
          "[data] augment is '{}', expected flip, crop:PIXELS (1 to {}), or "
          "flip,crop:PIXELS; change --augment",
          text, kMostCrop));
    }
  }
  return augmentation;
}

AugmentationDraw draw_augmentation(
    const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t position) {
  const uint64_t bits = random_bits(seed, epoch, position);
  AugmentationDraw draw;
  draw.down = offset_of(bits, augmentation.crop);
  draw.right = offset_of(bits >> 31, augmentation.crop);
  draw.mirror = augmentation.flip && (bits >> 63) != 0;
  return draw;
}

int64_t draw_start(int64_t num_starts, uint64_t seed, int64_t epoch, int64_t position) {
  const uint64_t bits = random_bits(seed, epoch, position);
  return static_cast<int64_t>(bits % static_cast<uint64_t>(num_starts));
}

void check(const InputOptions& options, const Dataset& data) {
  const auto& shape = data.inputs.shape;
  const size_t count = options.mean.size();
  const size_t slices = shape.empty() ? 1 : static_cast<size_t>(shape[0]);
  if (count != options.std.size() || (count != 1 && count != slices)) {
    throw ConfigError(fmt::format(
        "[data] there are {} means and {} standard deviations, expected 1 or {} of "
        "each for samples of the shape {}; change --mean and --std",
        count, options.std.size(), slices, shape_text(shape)));
  }
  for (const double std : options.std) {
    if (!(std > 0)) {
      throw ConfigError(
          fmt::format("[data] std is {}, expected std > 0; change --std", std));
    }
  }
  if (options.pad < 0) {
    throw ConfigError(
        fmt::format("[data] pad is {}, expected pad >= 0; change pad", options.pad));
  }
  if (!data.has_images() && (options.pad > 0 || options.augmentation.any())) {
    throw ConfigError(fmt::format(
        "[data] {} needs images of uint8, but the samples are {} of the shape {}; {}",
        options.pad > 0 ? "the model" : "augment", name_of(data.inputs.type),
        shape_text(shape), options.pad > 0 ? "change --model" : "omit --augment"));
  }
  if (data.has_images() && options.augmentation.crop > std::min(shape[1], shape[2])) {
    throw ConfigError(fmt::format(
        "[data] augment crops by {} pixels, but images are {}; change --augment",
        options.augmentation.crop, shape_text(shape)));
  }
}

InputConverter::InputConverter(const Dataset& data, const InputOptions& options)
    : is_index_(data.has_indices()), pad_(options.pad), shape_(data.inputs.shape) {
  check(options, data);
  format_.type = data.inputs.type;
  format_.shape = data.inputs.shape;
  for (size_t i = 0; i < options.mean.size(); ++i) {
    if (data.has_images()) {
      pixels_.emplace_back(options.mean[i], options.std[i]);
    }
    means_.push_back(static_cast<float>(options.mean[i]));
    stds_.push_back(static_cast<float>(options.std[i]));
  }
  if (pad_ > 0) {
    shape_[1] += 2 * pad_;
    shape_[2] += 2 * pad_;
  }
  for (const int64_t size : shape_) {
    numel_ *= size;
  }
}

at::Tensor InputConverter::make_batch(
    int64_t count, const at::TensorOptions& memory) const {
  std::vector<int64_t> sizes = {count};
  sizes.insert(sizes.end(), shape_.begin(), shape_.end());
  auto batch = at::empty(sizes, memory.dtype(is_index_ ? at::kLong : at::kFloat));
  if (pad_ > 0) {
    const auto channels = static_cast<int64_t>(pixels_.size());
    for (int64_t i = 0; i < channels; ++i) {
      const float black = pixels_[static_cast<size_t>(i)](0);
      (channels == 1 ? batch : batch.select(1, i)).fill_(black);
    }
  }
  return batch;
}

bool InputConverter::convert(
    const uint8_t* sample, const AugmentationDraw* draw, void* batch,
    int64_t row) const {
  if (is_index_) {
    convert_indices(sample, static_cast<int64_t*>(batch) + row * numel_);
    return true;
  }
  auto* to = static_cast<float*>(batch) + row * numel_;
  if (format_.type == ElementType::float32) {
    const auto* from = reinterpret_cast<const float*>(sample);
    convert_numbers(from, to);
    return are_finite(from, format_.numel());
  }
  if (pixels_.empty()) {
    convert_numbers(sample, to);
    return true;
  }
  convert_pixels(sample, draw, to);
  return true;
}

void InputConverter::convert_pixels(
    const uint8_t* sample, const AugmentationDraw* draw, float* to) const {
  // Without padding, all pixels with the same mean are processed as one long row,
  // because the CPU mispredicts a branch at the end of each row.
  if (draw == nullptr && pad_ == 0) {
    const int64_t each = numel_ / static_cast<int64_t>(pixels_.size());
    for (const auto& normalise : pixels_) {
      normalise.row(sample, each, to);
      sample += each;
      to += each;
    }
    return;
  }
  const auto& shape = format_.shape;
  const int64_t out_width = shape_[2];
  for (int64_t channel = 0; channel < shape[0]; ++channel) {
    const auto& normalise = pixels_[pixels_.size() == 1 ? 0 : channel];
    float* out = to + channel * shape_[1] * out_width + pad_ * out_width + pad_;
    if (draw != nullptr) {
      change_plane(sample, *draw, normalise, out);
    } else {
      for (int64_t row = 0; row < shape[1]; ++row) {
        normalise.row(sample + row * shape[2], shape[2], out + row * out_width);
      }
    }
    sample += shape[1] * shape[2];
  }
}

void InputConverter::change_plane(
    const uint8_t* from, const AugmentationDraw& draw, const Normaliser& normalise,
    float* to) const {
  const int64_t height = format_.shape[1];
  const int64_t width = format_.shape[2];
  const int64_t first = std::max<int64_t>(0, -draw.right);
  const int64_t count = width - std::abs(draw.right);
  const float black = normalise(0);
  for (int64_t row = 0; row < height; ++row, to += width + 2 * pad_) {
    const int64_t source = row + draw.down;
    if (source < 0 || source >= height) {
      std::fill(to, to + width, black);
      continue;
    }
    std::fill(to, to + first, black);
    normalise.row(from + source * width + first + draw.right, count, to + first);
    std::fill(to + first + count, to + width, black);
    if (draw.mirror) {
      std::reverse(to, to + width);
    }
  }
}

template <typename Number>
void InputConverter::convert_numbers(const Number* from, float* to) const {
  const int64_t numel = format_.numel();
  const auto slices = static_cast<int64_t>(means_.size());
  if (slices == numel) {
    for (int64_t i = 0; i < numel; ++i) {
      to[i] =
          (from[i] - means_[static_cast<size_t>(i)]) / stds_[static_cast<size_t>(i)];
    }
    return;
  }
  const int64_t each = numel / slices;
  for (int64_t slice = 0; slice < slices; ++slice) {
    const float mean = means_[static_cast<size_t>(slice)];
    const float std = stds_[static_cast<size_t>(slice)];
    for (int64_t i = 0; i < each; ++i) {
      to[i] = (from[i] - mean) / std;
    }
    from += each;
    to += each;
  }
}

void InputConverter::convert_indices(const uint8_t* sample, int64_t* to) const {
  const int64_t numel = format_.numel();
  if (format_.type == ElementType::int64) {
    std::memcpy(to, sample, static_cast<size_t>(numel) * sizeof(int64_t));
  } else {
    std::copy_n(sample, numel, to);
  }
}

}  // namespace tandem
