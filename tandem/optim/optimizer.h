#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/config/options/optimizer_options.h"
#include "tandem/core/arena.h"
#include "tandem/core/step_scalars.h"

namespace tandem {

/// How one parameter group differs. A slot's `group` is an index into the list.
struct ParameterGroup {
  double lr_scale = 1;
  double weight_decay_scale = 1;
};

class GradScaler;

/// Updates parameters from gradients, in one pass over a range of the arenas.
///
/// The strategy decides which ranges, and when: the whole arena, one bucket,
/// one rank's slice, a pipeline stage, or the server's copy. Updating a step in
/// several ranges gives the same bits as updating it in one.
///
/// Numerics are those of torch.optim (1.13, single tensor), in the parameter's dtype:
/// float32 or float64; Adam and Adadelta divide and take roots less often, so their
/// last bit may differ. Different threads may update different ranges at the same time.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Applies one step to `range`. The parameter and gradient arenas were given
  /// to the factory; padding may be part of the range and stays zero. A segment
  /// that is not trainable is left alone.
  virtual void update(const ArenaRange& range, const StepScalars& step) = 0;

  /// State per parameter element, by PyTorch's names ("exp_avg", ...): arenas of
  /// the parameters' layout. Empty when there is none. Owned by the optimizer.
  virtual std::vector<Arena*> state() = 0;

  /// The base learning rate: options.lr or the default.
  virtual double base_lr() const = 0;

  /// What the loss is to be scaled with (grad_scaler.h); null: nothing. The strategy
  /// gives its scale to the executor, and calls its unscale() before update().
  virtual GradScaler* scaler() {
    return nullptr;
  }
};

/// `parameters` and `gradients` must outlive the optimizer and share a layout of
/// float32 or float64 segments on any device. (Segments that are not trainable may be
/// of other kinds.)
///
/// Throws ConfigError for a value out of range, or a setting that the optimizer does
/// not have.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups = {ParameterGroup{}});

}  // namespace tandem
