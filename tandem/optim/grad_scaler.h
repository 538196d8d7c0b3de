#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tandem/config/options/exec_options.h"
#include "tandem/core/arena.h"
#include "tandem/core/updates/loss_scale.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

/// The rule, and where it begins.
struct GradScalerOptions : LossScaleRule {
  double initial_scale = 65536;
};

/// Keeps small gradients from vanishing where they pass through 16 bits: the loss is
/// multiplied by a scale before backward, the gradients are divided by it afterwards. A
/// step whose gradients overflowed is left out, and a dynamic scale then shrinks; after
/// many good ones it grows.
///
/// Ranks that see the same gradients decide alike. Nobody is told in the step: what it
/// decides stays where the gradients are, until look(). Not thread-safe.
///
/// Source: torch/cuda/amp/grad_scaler.py and ATen's _amp_update_scale_. With a
/// max_scale of 2^24 it is the rule of apex/amp/scaler.py.
class GradScaler {
 public:
  /// `placement`: where the gradients are. Throws ConfigError for values out of range.
  explicit GradScaler(
      const GradScalerOptions& options, const Placement& placement = {});

  /// Factor on the loss of the step to come. Waits for the device.
  double scale() const;
  /// The same, float32, no dimensions: this object's own.
  at::Tensor scale_tensor() const {
    return state_.view(0);
  }

  /// Divides trainable gradients (float32, float64) by the scale, in one pass. Where
  /// one of them was not finite, `step` is left out. Counts it, and sets the scale of
  /// the step to come. `step`: where the gradients are.
  void unscale(Arena& gradients, StepScalars& step);

  /// Waits for the steps so far. Warns once of steps that a fixed scale had left out;
  /// `steps_done` says which they are among.
  ///
  /// Throws Error when the scale has shrunk to nothing: then it is not the scale that
  /// makes the gradients overflow.
  void look(int64_t steps_done);

  /// Waits for the device.
  int64_t skipped_steps() const;

  /// "scale", "growth_tracker", "skipped_steps": what a checkpoint keeps.
  Arena& state() {
    return state_;
  }

 private:
  bool unscale_here(Arena& gradients) const;
  void unscale_on_device(Arena& gradients, StepScalars& step) const;

  GradScalerOptions options_;
  Arena state_;
  // On a device: ScalerTensors::overflowed.
  at::Tensor overflowed_;
  bool warned_ = false;
};

/// What exec.loss_scale asks for, for fp16 by Apex's rule; nullopt for kNoScale.
std::optional<GradScalerOptions> scaler_options(const ExecOptions& exec);

/// `optimizer` with a scaler beside it: its state is the optimizer's state too, and
/// steps that were left out do not count. `placement`: where the gradients are.
std::unique_ptr<Optimizer> make_scaled_optimizer(
    std::unique_ptr<Optimizer> optimizer, const GradScalerOptions& options,
    const Placement& placement = {});

}  // namespace tandem
