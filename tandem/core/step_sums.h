#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace tandem {

/// Sums over batches: the loss, the metric of the loss, and the number of targets that
/// count in the loss. They cover the batches of this rank or, after a reduction, of all
/// ranks.
///
/// The sums stay on the device that computed the loss. Only values() waits for the
/// device. Copies are independent. Not thread-safe.
class StepSums {
 public:
  struct Values {
    double loss = 0;
    // Sum of the metric (Metric in config/options/metric.h): number of correct targets,
    // or sum of absolute errors.
    double metric = 0;
    // Number of targets that count in the loss. A sample has one target, or several:
    // one for each position with a class, or one for each number.
    double samples = 0;

    /// Returns the loss per target; 0 without samples.
    double mean_loss() const;
  };

  /// Constructs sums over no batches.
  StepSums() = default;

  /// Constructs sums from a float64 tensor {loss, metric, samples}. The caller must
  /// not change the tensor afterwards.
  explicit StepSums(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  /// Constructs sums in main memory.
  StepSums(double loss, double metric, double samples);

  /// Returns whether nothing has been added. Does not wait for the device.
  bool empty() const {
    return !tensor_.defined();
  }

  /// Adds other sums. Does not wait for the device.
  StepSums& operator+=(const StepSums& more);

  /// Returns the sums as numbers. Waits for the device.
  Values values() const;

  /// Returns a float64 tensor {loss, metric, samples} on the sums' device. The caller
  /// must not change it.
  at::Tensor tensor() const;

 private:
  at::Tensor tensor_;
};

}  // namespace tandem
