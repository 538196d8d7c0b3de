#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/config/options/optimizer_options.h"
#include "tandem/core/arena.h"
#include "tandem/core/step_scalars.h"

namespace tandem {

/// Factors on the optimizer's settings for one parameter group. `Slot::group` is an
/// index into the list of groups.
struct ParameterGroup {
  double lr_scale = 1;
  double weight_decay_scale = 1;
};

class GradScaler;

/// Updates parameters from gradients, in one pass over a range of the arenas.
///
/// The strategy chooses the ranges and the time: the whole arena, one bucket, one
/// rank's slice, a pipeline stage, or the server's copy. Updating several ranges
/// one after another gives the same bits as updating all of them at once.
///
/// Results are those of torch.optim (1.13, single tensor) in the parameter's dtype,
/// float32 or float64. Adam and Adadelta use fewer divisions and square roots, so
/// their last bit may differ. Several threads may update disjoint ranges concurrently.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Applies one step to `range` of the arenas given to make_optimizer(). The range may
  /// contain padding, which stays zero. Segments that are not trainable do not change.
  virtual void update(const ArenaRange& range, const StepScalars& step) = 0;

  /// Returns the state arenas, named as in PyTorch ("exp_avg", ...), in the layout of
  /// the parameters. Empty if the optimizer has no state. The optimizer owns them.
  virtual std::vector<Arena*> state() = 0;

  /// Returns the base learning rate: options.lr, or the optimizer's default if unset.
  virtual double base_lr() const = 0;

  /// Returns the loss scaler (grad_scaler.h), or null if losses are not scaled. The
  /// strategy passes its scale to the executor and calls its unscale() before update().
  virtual GradScaler* scaler() {
    return nullptr;
  }
};

/// Makes the optimizer that options.kind names.
///
/// `parameters` and `gradients` must outlive the optimizer and have the same layout.
/// Trainable segments are float32 or float64, on any device; others may have any dtype.
///
/// Throws ConfigError if a value is out of range or the optimizer lacks a setting.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups = {ParameterGroup{}});

}  // namespace tandem
