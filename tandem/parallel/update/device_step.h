#pragma once

#include <ATen/core/Tensor.h>

#include "tandem/core/arena.h"
#include "tandem/core/step_scalars.h"

namespace tandem {

/// The StepScalars of one step after the other, in the memory of the device that the
/// parameters are on. What kernels and LibTorch's operators write there stays there:
/// nothing waits for the device. Not thread-safe.
class DeviceStep {
 public:
  /// Where these arenas' parameters are.
  explicit DeviceStep(const ModelArenas& arenas);

  /// The next step: clips nothing and is not left out.
  void begin(double lr, int64_t step);

  /// For kernels of the device; only those in main memory may be looked at here.
  StepScalars& scalars();

  /// StepScalars::gradient_scale, float64, no dimensions.
  at::Tensor gradient_scale();

 private:
  // A StepScalars, its words as int64.
  at::Tensor words_;
};

}  // namespace tandem
