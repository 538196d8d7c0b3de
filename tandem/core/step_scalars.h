#pragma once

#include <cstdint>

namespace tandem {

/// Values of one optimizer step that apply to all parameters.
struct StepScalars {
  // Learning rate of this step, from the schedule.
  double lr = 0;
  // Factor on every gradient before the update. Gradient clipping sets the factor if
  // the arenas are on the CPU.
  double gradient_scale = 1;
  // Number of the optimizer step, from 1, for Adam's bias correction. A GradScaler
  // subtracts the skipped steps.
  int64_t step = 1;
  // True if gradients overflowed (optim/grad_scaler.h). The update then changes no
  // parameter.
  bool skip = false;
  // Number of skipped steps since the start of the run, which a GradScaler has
  // subtracted from `step`.
  int64_t skipped_steps = 0;
};

}  // namespace tandem
