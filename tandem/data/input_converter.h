#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tandem/data/augmentation.h"
#include "tandem/data/dataset.h"
#include "tandem/data/normalise.h"

namespace tandem {

/// Conversion of samples to inputs of a model.
struct InputOptions {
  // Normalization in float32, as in torchvision: a pixel p becomes (p / 255 - mean) /
  // std, and a number x of a float32 sample becomes (x - mean) / std. One value, or one
  // value for each channel or column (the first size of a sample's shape). No effect on
  // indices.
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
  bool convert_floats(const float* from, float* to) const;
  void convert_indices(const uint8_t* sample, int64_t* to) const;
  // Writes a cropped and mirrored plane of pixels.
  void change_plane(
      const uint8_t* from, const AugmentationDraw& draw, const Normaliser& normalise,
      float* to) const;

  Samples format_;
  bool is_index_ = false;
  int64_t pad_ = 0;
  // Conversions of pixels, one for each mean, if inputs are uint8.
  std::vector<Normaliser> pixels_;
  // Means and standard deviations, if inputs are float32.
  std::vector<float> means_;
  std::vector<float> stds_;
  std::vector<int64_t> shape_;
  // Number of elements of a converted sample.
  int64_t numel_ = 1;
};

}  // namespace tandem
