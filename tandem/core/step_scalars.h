#pragma once

#include <cstdint>

namespace tandem {

/// What differs from step to step and kernels must know. It lies in the memory of the
/// device that the parameters are on: nothing of a step is then read back, and a step
/// that is captured once (a CUDA graph) reads it anew each time, where what the host
/// passes to a kernel would stay as it was.
struct StepScalars {
  // The schedule's learning rate for this step.
  double lr = 0;
  // Every gradient is multiplied by this first; clipping sets it in the step.
  double gradient_scale = 1;
  // Counts optimizer steps from 1 (Adam's bias correction). A GradScaler takes those
  // off that were left out.
  int64_t step = 1;
  // Not 0: gradients overflowed (optim/grad_scaler.h), and the update changes nothing.
  int64_t left_out = 0;
};

}  // namespace tandem
