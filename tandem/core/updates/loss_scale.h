#pragma once

#include <cstdint>
#include <limits>

#include "tandem/core/step_scalars.h"

namespace tandem {

/// How a loss scale follows the gradients: torch.cuda.amp.GradScaler's options, and
/// Apex's bound.
struct LossScaleRule {
  double growth_factor = 2;
  double backoff_factor = 0.5;
  // Steps without overflow after which the scale grows.
  int64_t growth_interval = 2000;
  // Where it stops growing.
  double max_scale = std::numeric_limits<float>::max();
  // False: the scale stays what it is.
  bool dynamic = true;
};

/// Ends a step whose gradients were all `finite`, or is left out: counts it, takes
/// those that were left out off step.step, and sets the scale of the step to come. It
/// may shrink to nothing.
inline void end_scaled_step(
    const LossScaleRule& rule, bool finite, float& scale, int64_t& growth_tracker,
    int64_t& skipped_steps, StepScalars& step) {
  step.left_out = !finite;
  skipped_steps += step.left_out ? 1 : 0;
  step.step -= skipped_steps;
  if (!rule.dynamic) {
    return;
  }
  if (!finite) {
    scale = static_cast<float>(scale * rule.backoff_factor);
    growth_tracker = 0;
  } else if (++growth_tracker == rule.growth_interval) {
    const auto more = static_cast<float>(scale * rule.growth_factor);
    scale = more <= rule.max_scale ? more : scale;
    growth_tracker = 0;
  }
}

}  // namespace tandem
