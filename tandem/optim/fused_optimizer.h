#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/core/simd.h"
#include "tandem/core/updates/group_context.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

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
  /// with the formulas of core/updates, so the results equal those of the CPU but for
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

/// decayed_gradient() of core/updates in LibTorch's operators: a new tensor.
at::Tensor decayed_gradient(
    const at::Tensor& grad, const at::Tensor& param, double gradient_scale,
    double weight_decay);

/// Throws ConfigError unless `holds` and `value` is finite. `expected`: for
/// instance "at least 0".
void check_setting(
    const std::string& name, double value, bool holds, const std::string& expected);

/// The value, or the default where it is unset.
double eps_of(const OptimizerOptions& options, double default_eps);

/// The factories of make_optimizer(), one for each optimizer.
using OptimizerFactory = std::unique_ptr<Optimizer>(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups);
OptimizerFactory make_sgd, make_adam, make_adamw, make_adadelta;

}  // namespace tandem
