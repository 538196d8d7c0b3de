#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace tandem {

/// Sums over batches: the loss, the number of correct samples and the number of
/// samples. The batches are those of this rank, or of all ranks after a reduction.
///
/// The sums stay on the device that computed the loss. Adding does not wait for that
/// device; only values() does. Copies are independent. Not thread-safe.
class StepSums {
 public:
  struct Values {
    double loss = 0;
    double correct = 0;
    double samples = 0;

    /// Returns the loss per sample; 0 without samples.
    double mean_loss() const;
    /// Returns the percentage of correct samples; 0 without samples.
    double percent_correct() const;
  };

  /// Makes empty sums.
  StepSums() = default;

  /// Makes sums from {loss, correct, samples}, float64. The caller must not change the
  /// tensor afterwards.
  explicit StepSums(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  /// Makes sums in main memory.
  StepSums(double loss, double correct, double samples);

  /// Returns whether nothing has been added. Does not wait for the device.
  bool empty() const {
    return !tensor_.defined();
  }

  /// Adds other sums. Does not wait for the device.
  StepSums& operator+=(const StepSums& more);

  /// Returns the sums as numbers. Waits for the device.
  Values values() const;

  /// Returns {loss, correct, samples}, float64, on the sums' device. The caller must
  /// not change the tensor.
  at::Tensor tensor() const;

 private:
  at::Tensor tensor_;
};

}  // namespace tandem
