#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/normalise.h"

namespace tandem {

/// Random changes of training images.
struct Augmentation {
  // True: mirrors each image left to right, with a probability of 1/2.
  bool flip = false;
  // Number of black pixels added on each side before an image is cropped to its size at
  // a random place; 0: no crop. Corresponds to torchvision's RandomCrop(size,
  // padding=crop).
  int64_t crop = 0;

  bool any() const {
    return flip || crop > 0;
  }
};

/// Random changes of one image. The pixel (y, x) of the changed image is the input's
/// pixel (y + down, x + right). If `mirror` is true, the result is then mirrored.
struct AugmentationDraw {
  int64_t down = 0;
  int64_t right = 0;
  bool mirror = false;
};

/// Parses a text such as "flip,crop:4". Returns no augmentation for "". Throws
/// ConfigError for any other text.
[[nodiscard]] Augmentation parse_augmentation(const std::string& text);

/// Returns the random changes of the sample at a global position of an epoch
/// (sampler.h). A pure function, so the number of ranks and a restart do not change the
/// images. Draws with SplitMix64 (Steele, Lea and Flood, 2014).
[[nodiscard]] AugmentationDraw draw_augmentation(
    const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t position);

/// Returns a random start of a sample in a sequence, from 0 to `num_starts` - 1. A pure
/// function like draw_augmentation().
[[nodiscard]] int64_t draw_start(
    int64_t num_starts, uint64_t seed, int64_t epoch, int64_t position);

/// Conversion of samples to inputs of a model.
struct InputOptions {
  // Normalization in float32, as in torchvision: a pixel p of an image becomes (p / 255
  // - mean) / std, and a number x of another sample becomes (x - mean) / std. One
  // value, or one value for each channel or column (the first size of a sample's
  // shape). No effect on indices.
  std::vector<double> mean = {0.1307};
  std::vector<double> std = {0.3081};
  // Number of black pixels added on each side of an image before the normalization.
  int64_t pad = 0;
  Augmentation augmentation;
};

/// Throws ConfigError if an option is out of range, or does not fit the samples, for
/// example in these cases:
/// - the number of means is neither 1 nor the first size of a sample's shape, or
///   differs from the number of standard deviations
/// - a standard deviation is not greater than 0
/// - `pad` or `augmentation` is set, but the samples are not images
void check(const InputOptions& options, const Dataset& data);

/// Converts samples of a data set to inputs of a model. Deterministic; const functions
/// are thread-safe.
class InputConverter {
 public:
  /// Throws the errors of check().
  InputConverter(const Dataset& data, const InputOptions& options);

  /// Allocates a batch of `count` inputs. If InputOptions::pad is greater than 0, sets
  /// all pixels to the normalized value of black; otherwise the values are undefined.
  /// The type is int64 for indices, otherwise float32. `memory` defines the device, and
  /// whether memory is pinned.
  at::Tensor make_batch(int64_t count, const at::TensorOptions& memory) const;

  /// Converts a sample and writes it to row number `row` of `batch`, which is the
  /// memory of a result of make_batch(). `draw` is the augmentation; null: no
  /// augmentation. Returns false if a number of a float32 sample is not finite.
  [[nodiscard]] bool convert(
      const uint8_t* sample, const AugmentationDraw* draw, void* batch,
      int64_t row) const;

  /// Returns the shape of a converted sample.
  const std::vector<int64_t>& shape() const {
    return shape_;
  }
  /// Returns the conversion of the first channel's pixels. Call it only if samples are
  /// images.
  const Normaliser& pixel_normaliser() const {
    return pixels_.front();
  }

 private:
  void convert_pixels(
      const uint8_t* sample, const AugmentationDraw* draw, float* to) const;
  template <typename Number>
  void convert_numbers(const Number* from, float* to) const;
  void convert_indices(const uint8_t* sample, int64_t* to) const;
  // Writes a cropped and mirrored plane of pixels.
  void change_plane(
      const uint8_t* from, const AugmentationDraw& draw, const Normaliser& normalise,
      float* to) const;

  Samples format_;
  bool is_index_ = false;
  int64_t pad_ = 0;
  // Conversions of pixels, one for each mean, if inputs are images.
  std::vector<Normaliser> pixels_;
  // Means and standard deviations, for other inputs.
  std::vector<float> means_;
  std::vector<float> stds_;
  std::vector<int64_t> shape_;
  // Number of elements of a converted sample.
  int64_t numel_ = 1;
};

}  // namespace tandem
