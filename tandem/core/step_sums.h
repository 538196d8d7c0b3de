#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace tandem {

/// What reports are made of: the summed loss, the correct samples and the samples of
/// some batches of this rank, or after a reduction of all ranks.
///
/// They stay on the device that computed the loss, and adding waits for nothing there;
/// only values() does. A value like a number: changing one changes no copy of it. Not
/// thread-safe.
class StepSums {
 public:
  struct Values {
    double loss = 0;
    double correct = 0;
    double samples = 0;

    /// Per sample; 0 without samples.
    double mean_loss() const;
    double percent_correct() const;
  };

  /// Of no batches.
  StepSums() = default;

  /// `tensor`: {loss, correct, samples}, float64. Nobody changes it from now on.
  explicit StepSums(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  /// In main memory.
  StepSums(double loss, double correct, double samples);

  /// Whether nothing was added yet: known without waiting.
  bool empty() const {
    return !tensor_.defined();
  }

  StepSums& operator+=(const StepSums& more);

  /// Waits for the device.
  Values values() const;

  /// {loss, correct, samples}, float64, where they are: to look at, send or save.
  at::Tensor tensor() const;

 private:
  at::Tensor tensor_;
};

}  // namespace tandem
