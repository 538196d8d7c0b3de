#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tandem/config/options/setting.h"
#include "tandem/core/arena.h"
#include "tandem/core/simd.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

/// Arguments of make_optimizer(). All options are set.
struct OptimizerParts {
  OptimizerOptions options;
  Arena& parameters;
  Arena& gradients;
  const std::vector<ParameterGroup>& groups;
};

/// Settings of one optimizer step for one parameter group.
struct GroupContext {
  double lr = 0;
  double weight_decay = 0;
  double gradient_scale = 1;
  // Number of the optimizer step, from 1, without skipped steps.
  int64_t step = 1;
};

/// Returns gradient_scale * grad + weight_decay * param. `weight_decay` is equal for
/// all elements, so the compiler can move the condition out of the caller's loop and
/// vectorise the loop.
template <typename T>
TANDEM_ALWAYS_INLINE T
decayed_gradient(T grad, T param, T gradient_scale, T weight_decay) {
  T g = gradient_scale * grad;
  if (weight_decay != 0) {
    g += weight_decay * param;
  }
  return g;
}

/// Base class of the optimizers that implement an algorithm. It owns the state arenas
/// and divides each segment into runs. All parameters of a run are in one parameter
/// group. Each subclass implements an algorithm and updates a run in one pass. Its
/// source file defines make_fused_optimizer(KindTag<kind>, const OptimizerParts&),
/// which optimizer.cpp calls. Example of a segment:
///
///   | run of group 0 | run of group 1 | run of group 0 |
///
/// The arenas of parameters, gradients and state have the same layout.
/// A pass reads and writes 12 bytes per float32 parameter, and 8 more for each state
/// arena.
class FusedOptimizer : public Optimizer {
 public:
  void update(const ArenaRange& range, const StepScalars& step) final;
  std::vector<Arena*> state() final;
  double base_lr() const final {
    return options_.lr;
  }

 protected:
  /// Throws ConfigError for invalid groups or dtypes.
  explicit FusedOptimizer(const OptimizerParts& parts);

  /// Makes a state arena of zeros, which this object owns.
  Arena& add_state(const std::string& name);

  /// Updates a run of parameters on the CPU. `run` is not empty and is in one group and
  /// one trainable segment. Several threads may call this function concurrently with
  /// disjoint runs.
  virtual void update_run(const ArenaRange& run, const GroupContext& context) = 0;

  /// Updates a run of parameters on a device with LibTorch's operators. Uses the
  /// formulas of update_run(), so only the last bits differ. Called by one thread.
  virtual void update_run_on_device(
      const ArenaRange& run, const GroupContext& context) = 0;

  /// Calls `body` with a zero of the run's type, float or double. A generic lambda can
  /// thus use the type of its argument.
  template <typename Body>
  void with_dtype(const ArenaRange& run, Body&& body) const {
    if (parameters_.segment(run.segment).scalar_type() == at::kDouble) {
      body(double{0});
    } else {
      body(float{0});
    }
  }

  template <typename T>
  static T* data(const Arena& arena, const ArenaRange& run) {
    return arena.segment(run.segment).data_ptr<T>() + run.begin;
  }

  const OptimizerOptions options_;
  Arena& parameters_;
  Arena& gradients_;

 private:
  // Elements [begin, end) of a segment. All of them are in one parameter group.
  struct Run {
    int64_t begin;
    int64_t end;
    size_t group;
  };

  void check_arenas() const;
  void plan_runs();

  std::vector<ParameterGroup> groups_;
  // Runs of each segment, which together cover the whole segment.
  std::vector<std::vector<Run>> runs_;
  std::shared_ptr<const ArenaLayout> layout_;
  std::vector<std::unique_ptr<Arena>> state_;
};

/// Computes decayed_gradient() with LibTorch's operators. Returns a new tensor.
at::Tensor decayed_gradient(
    const at::Tensor& grad, const at::Tensor& param, double gradient_scale,
    double weight_decay);

/// Throws ConfigError unless `value` is finite and `holds` is true. `holds` states
/// whether `value` is in its range. `expected` is the range in the error, such as "at
/// least 0".
void check_setting(
    const std::string& name, double value, bool holds, const std::string& expected);

}  // namespace tandem
