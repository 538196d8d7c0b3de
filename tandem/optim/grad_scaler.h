#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "tandem/config/options/exec_options.h"
#include "tandem/core/arena.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

/// How a loss scale follows the gradients: torch.cuda.amp.GradScaler's options, and
/// Apex's bound.
struct GradScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  // Steps without overflow after which the scale grows.
  int64_t growth_interval = 2000;
  // Where it stops growing.
  double max_scale = std::numeric_limits<float>::max();
  // False: the scale stays what it is.
  bool dynamic = true;
};

/// Keeps small gradients from vanishing where they pass through 16 bits: the loss is
/// multiplied by a scale before backward, the gradients are divided by it afterwards. A
/// step whose gradients overflowed is left out, and a dynamic scale then shrinks; after
/// many good ones it grows.
///
/// Ranks that see the same gradients decide alike. The scaler's state is in main
/// memory; with gradients on a device each step reads one number back. Not thread-safe.
///
/// Source: torch/cuda/amp/grad_scaler.py and ATen's _amp_update_scale_. With a
/// max_scale of 2^24 it is the rule of apex/amp/scaler.py.
class GradScaler {
 public:
  /// Throws ConfigError for values out of range.
  explicit GradScaler(const GradScalerOptions& options);

  /// Factor on the loss of the next step.
  double scale() const;

  /// Divides trainable gradients (float32, float64) by the scale, in one pass. Where
  /// one of them was not finite, `step` is left out. Counts it, and sets the scale of
  /// the step to come.
  void unscale(Arena& gradients, StepScalars& step);

  /// Warns once of steps that a fixed scale had left out;
  /// `steps_done` says which they are among.
  ///
  /// Throws Error when the scale has shrunk to nothing: then it is not the scale that
  /// makes the gradients overflow.
  void look(int64_t steps_done);

  int64_t skipped_steps() const;

  /// "scale", "growth_tracker", "skipped_steps": what a checkpoint keeps.
  Arena& state() {
    return state_;
  }

 private:
  GradScalerOptions options_;
  Arena state_;
  bool warned_ = false;
};

/// What exec.loss_scale asks for, for fp16 by Apex's rule; nullopt for kNoScale.
std::optional<GradScalerOptions> scaler_options(const ExecOptions& exec);

/// `optimizer` with a scaler beside it: its state is the optimizer's state too, and
/// steps that were left out do not count.
std::unique_ptr<Optimizer> make_scaled_optimizer(
    std::unique_ptr<Optimizer> optimizer, const GradScalerOptions& options);

}  // namespace tandem
