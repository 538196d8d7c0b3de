#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/config/options/exec_options.h"
#include "tandem/core/arena.h"
#include "tandem/optim/optimizer.h"

namespace torch {
namespace optim {
class Optimizer;
}  // namespace optim
}  // namespace torch

namespace tandem {

/// An optimizer of torch::optim whose ranks must make the same decisions, such as a
/// ShardedOptimizer.
class CommonDecision {
 public:
  virtual ~CommonDecision() = default;
  /// Returns whether `mine` is true on all of these ranks. Collective.
  virtual bool holds_on_all_ranks(bool mine) = 0;
};

/// Options of torch.cuda.amp.GradScaler, with Apex's upper bound on the scale.
struct GradScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  // Number of consecutive steps without overflow after which the scale grows.
  int64_t growth_interval = 2000;
  // Upper bound of the scale.
  double max_scale = std::numeric_limits<float>::max();
  // True if the scale changes during training; false if it is constant.
  bool dynamic = true;
};

/// Multiplies losses by a scale, and divides gradients by the same scale before the
/// update. Without the scale, small gradients would become zero in 16-bit formats.
///
/// If a gradient overflows, the step is skipped and a dynamic scale is multiplied by
/// backoff_factor. After growth_interval steps without overflow, a dynamic scale is
/// multiplied by growth_factor.
///
/// Ranks that pass equal values of `finite` make equal decisions. The state is in main
/// memory. If gradients are on another device, each step copies one number to main
/// memory. Not thread-safe.
///
/// In a custom loop, it is used like PyTorch's:
///
///   tandem::GradScaler scaler;
///   ...
///     optimizer.zero_grad();
///     scaler.scale(loss).backward();
///     scaler.unscale(optimizer);   // only for clipping
///     ddp.clip_grad_norm(1.0);
///     scaler.step(optimizer);
///     scaler.update();
///
/// Source: torch/cuda/amp/grad_scaler.py and ATen's _amp_update_scale_. With a
/// max_scale of 2^24 the rule is that of apex/amp/scaler.py.
class GradScaler {
 public:
  /// Makes a scaler with the initial scale. Throws ConfigError unless float32 can hold
  /// this scale.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Returns the factor for the loss of the next step.
  double scale() const;

  // --- for custom loops ---

  /// Returns loss * scale(), in the dtype of the loss (float32 or float64).
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of the optimizer's parameters by the scale; gradients must
  /// be dense, and float32 or float64, otherwise throws ConfigError. Call it before the
  /// gradients are clipped, at most once per step (otherwise throws Error). Collective
  /// for a CommonDecision.
  void unscale(torch::optim::Optimizer& optimizer);

  /// Calls optimizer.step() if all gradients are finite, and unscale() before, if it
  /// has not been called. Returns whether a step was made.
  bool step(torch::optim::Optimizer& optimizer);

  /// Sets the scale of the next step. Throws the error of check_skipped_steps(). Call
  /// it once after step() for each optimizer.
  void update();

  // --- for tandem's own steps ---

  /// Divides the gradients (float32, float64) in `ranges` by the scale in one pass.
  /// Returns whether all of them were finite.
  [[nodiscard]] bool unscale(
      const Arena& gradients, const std::vector<ArenaRange>& ranges) const;

  /// Sets the scale of the next step. If `finite` is false, marks `step` as skipped.
  void end_step(bool finite, StepScalars& step);

  /// Warns once if steps were skipped with a constant scale. `steps_done` is the number
  /// of completed steps, including skipped steps.
  ///
  /// Throws Error if the scale has shrunk below the smallest normal float, because
  /// gradients then overflow at any scale.
  void check_skipped_steps(int64_t steps_done);

  /// Returns the number of skipped steps since the start of the run.
  int64_t skipped_steps() const;

  /// Returns the state for checkpoints: "scale", "growth_tracker", "skipped_steps".
  Arena& state() {
    return state_;
  }

 private:
  void set_next_scale(bool finite);

  GradScalerOptions options_;
  Arena state_;
  bool warned_ = false;
  // In the current step of a custom loop: true for an optimizer whose gradients were
  // finite.
  std::map<const torch::optim::Optimizer*, bool> finite_;
  int64_t updates_ = 0;
};

/// Returns the options that exec.loss_scale selects, with Apex's upper bound for fp16;
/// nullopt for kNoScale.
std::optional<GradScalerOptions> scaler_options(const ExecOptions& exec);

/// Returns an optimizer that wraps `optimizer` and has a GradScaler. Its state()
/// includes the scaler's state.
std::unique_ptr<Optimizer> make_scaled_optimizer(
    std::unique_ptr<Optimizer> optimizer, const GradScalerOptions& options);

}  // namespace tandem
