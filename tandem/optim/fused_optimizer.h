#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/core/simd.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

/// One optimizer step as one parameter group sees it.
struct GroupContext {
  double lr = 0;
  double weight_decay = 0;
  double gradient_scale = 1;
  // Counts from 1.
  int64_t step = 1;
};

/// What every optimizer makes of a gradient first. `weight_decay` is the same for all
/// elements: compilers take the condition out of a loop, which they then vectorise.
template <typename T>
TANDEM_ALWAYS_INLINE T
decayed_gradient(T grad, T param, T gradient_scale, T weight_decay) {
  T g = gradient_scale * grad;
  if (weight_decay != 0) {
    g += weight_decay * param;
  }
  return g;
}

/// What the optimizers share: state arenas, and splitting a range into runs of one
/// parameter group. A class for each algorithm updates a run in one pass.
///
///   parameters   | run of group 0 | run of group 1 | run of group 0 |  one segment
///   gradients and state arenas have the same layout
///
/// A pass moves 12 bytes of memory for a float32 parameter, and 8 for each state arena.
class FusedOptimizer : public Optimizer {
 public:
  void update(const ArenaRange& range, const StepScalars& step) final;
  std::vector<Arena*> state() final;
  double base_lr() const final {
    return lr_;
  }

 protected:
  /// An unset lr or weight_decay becomes the default given.
  ///
  /// Throws ConfigError as make_optimizer says, for what is not particular to
  /// one algorithm.
  FusedOptimizer(
      const OptimizerOptions& options, double default_lr, double default_weight_decay,
      Arena& parameters, Arena& gradients, const std::vector<ParameterGroup>& groups);

  /// A new arena of zeros.
  Arena& add_state(const std::string& name);

  /// `run` is not empty and lies in one group and one trainable segment. Called by
  /// several threads at once, for runs that do not overlap.
  virtual void update_run(const ArenaRange& run, const GroupContext& context) = 0;

  /// Updates such a run of parameters that are not on the CPU, in LibTorch's operators:
  /// with the formulas of update_run(), so the results equal those of the CPU but for
  /// the last bits. Not called by several threads.
  virtual void update_run_on_device(
      const ArenaRange& run, const GroupContext& context) = 0;

  /// Calls `body` with a zero of the run's dtype, float or double.
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

  Arena& parameters_;
  Arena& gradients_;

 private:
  // Neighbouring elements of a segment that belong to one group: [begin, end).
  struct Run {
    int64_t begin;
    int64_t end;
    size_t group;
  };

  // Calls `body` with each part of a run that is in the range, and its context.
  template <typename Body>
  void for_each_run(
      const ArenaRange& range, const StepScalars& step, const Body& body) const;
  void check_arenas() const;
  void plan_runs();

  double lr_;
  double weight_decay_;
  std::vector<ParameterGroup> groups_;
  // The runs of each segment, which together are the whole of it.
  std::vector<std::vector<Run>> runs_;
  std::shared_ptr<const ArenaLayout> layout_;
  std::vector<std::unique_ptr<Arena>> state_;
};

/// decayed_gradient() in LibTorch's operators: a new tensor.
at::Tensor decayed_gradient(
    const at::Tensor& grad, const at::Tensor& param, double gradient_scale,
    double weight_decay);

/// Throws ConfigError unless `holds` and `value` is finite. `expected`: for
/// instance "at least 0".
void check_setting(
    const std::string& name, double value, bool holds, const std::string& expected);

/// The value, or the default where it is unset.
double eps_of(const OptimizerOptions& options, double default_eps);

}  // namespace tandem
