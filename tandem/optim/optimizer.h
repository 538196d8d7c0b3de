#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/config/options/optimizer_options.h"
#include "tandem/core/arena.h"
#include "tandem/core/step_scalars.h"

namespace tandem {

/// Factors on the learning rate and the weight decay of one parameter group.
/// `Slot::group` is the index of a parameter's group.
struct ParameterGroup {
  double lr_scale = 1;
  double weight_decay_scale = 1;
};

class GradScaler;

/// Updates parameters from gradients. One call updates a range of the arenas in one
/// pass.
///
/// The strategy chooses the ranges, such as the whole arena or one rank's slice, and
/// calls update(). The division of the arena into ranges does not change the bits of
/// the result.
///
/// Results equal those of torch.optim (its single-tensor versions) in the parameter's
/// type, float32 or float64, except for the last bits: some optimizers use fewer
/// divisions and square roots than PyTorch. The source files of the optimizers name
/// their sources. Thread-safe for disjoint ranges: several threads may update them
/// concurrently.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Applies one step to `range` of the arenas given to make_optimizer(). The range may
  /// contain padding, which stays zero. Ranges in segments that are not trainable do
  /// not change.
  virtual void update(const ArenaRange& range, const StepScalars& step) = 0;

  /// Returns whether each range must contain whole parameters, because an update of a
  /// parameter depends on the whole tensor.
  virtual bool needs_whole_tensors() const {
    return false;
  }

  /// Returns the state arenas, which the optimizer owns. Except for the arena of the
  /// loss scaler, they have PyTorch's names ("exp_avg", ...). If the optimizer does not
  /// need whole tensors, they have the layout of the parameters. Only moving averages
  /// (optim/ema.h) have memory for segments that are not trainable. Empty if the
  /// optimizer has no state.
  virtual std::vector<Arena*> state() = 0;

  /// Returns the base learning rate: options.lr, or the optimizer's default if unset.
  virtual double base_lr() const = 0;

  /// Returns the loss scaler (grad_scaler.h), or null if losses are not scaled. The
  /// strategy passes the scaler's scale() to the executor and calls unscale() before
  /// update().
  virtual GradScaler* scaler() {
    return nullptr;
  }
};

/// Returns the optimizer that options.kind selects. If options.ema_decay is not 0, it
/// also averages the parameters (ema.h).
///
/// `parameters` and `gradients` must outlive the optimizer and have the same layout.
/// Trainable segments are float32 or float64, on any device. Other segments may have
/// any type.
///
/// Throws ConfigError if a value is out of range or if `options` sets an option that
/// the optimizer does not have.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups = {ParameterGroup{}});

}  // namespace tandem
