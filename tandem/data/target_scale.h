#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Normalization of targets that are numbers: a target t becomes (t - mean) / std, in
/// float32. Const functions are thread-safe.
class TargetScale {
 public:
  /// `mean` and `std` have one value, or one value for each element of the first size
  /// of a target's shape. Throws ConfigError if their numbers do not fit, or if targets
  /// are classes and the values are not 0 and 1.
  TargetScale(
      const std::vector<double>& mean, const std::vector<double>& std,
      const Dataset& data);

  /// Normalizes a batch of targets in place.
  void normalize(const at::Tensor& targets) const;

  /// Returns outputs for normalized targets in the units of the targets, samples x
  /// target's shape. Returns `outputs` itself if targets are not normalized.
  [[nodiscard]] at::Tensor restore(const at::Tensor& outputs) const;

 private:
  // Undefined if targets are not normalized.
  at::Tensor mean_;
  at::Tensor std_;
};

}  // namespace tandem
