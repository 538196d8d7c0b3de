#pragma once

#include <cstdint>

namespace tandem {

/// The numbers of one optimizer step that do not depend on the parameter.
struct StepScalars {
  // Learning rate of the schedule for this step.
  double lr = 0;
  // Factor on every gradient before the update; clipping sets it on the CPU.
  double gradient_scale = 1;
  // Number of the optimizer step, from 1 (Adam's bias correction). A GradScaler
  // subtracts the steps that were skipped.
  int64_t step = 1;
  // Gradients overflowed (optim/grad_scaler.h), and the update changes nothing.
  bool left_out = false;
};

}  // namespace tandem
