#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/optim/algorithm.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

/// Applies an algorithm to arenas. It owns the state arenas and divides each segment
/// into runs. All parameters of a run are in one parameter group. Example of a segment:
///
///   | run of group 0 | run of group 1 | run of group 0 |
///
/// A run on the CPU is updated in one pass, which reads and writes 12 bytes per float32
/// parameter, and 8 more for each state arena. A kind that needs whole tensors updates
/// one parameter after another instead.
class FusedOptimizer final : public Optimizer {
 public:
  /// All settings of `options` are set. Throws ConfigError for invalid options, groups
  /// or dtypes.
  FusedOptimizer(
      const OptimizerOptions& options, Arena& parameters, Arena& gradients,
      const std::vector<ParameterGroup>& groups);

  void update(const ArenaRange& range, const StepScalars& step) override;
  std::vector<Arena*> state() override;
  double base_lr() const override {
    return options_.lr;
  }
  bool needs_whole_tensors() const override {
    return row_of(options_.kind).needs_whole_tensors;
  }

 private:
  // Elements [begin, end) of a segment. All of them are in one parameter group.
  struct Run {
    int64_t begin;
    int64_t end;
    size_t group;
  };

  // A state arena, which has a slot for some of the parameters.
  struct State {
    std::unique_ptr<Arena> arena;
    // For each slot of the parameters, its slot in `arena`.
    std::vector<std::optional<size_t>> slots;
  };

  void check_arenas() const;
  void plan_runs();
  void add_state(size_t index);
  std::shared_ptr<const ArenaLayout> layout_of_state(
      size_t index, std::vector<std::optional<size_t>>& slots) const;
  GroupContext context_of(size_t group, const StepScalars& step) const;
  void update_run(const ArenaRange& run, const GroupContext& context);
  void update_slots(const ArenaRange& range, const StepScalars& step);

  const OptimizerOptions options_;
  Arena& parameters_;
  Arena& gradients_;
  std::vector<ParameterGroup> groups_;
  // Runs of each segment, which together cover the whole segment.
  std::vector<std::vector<Run>> runs_;
  std::shared_ptr<const ArenaLayout> layout_;
  std::unique_ptr<Algorithm> algorithm_;
  std::vector<State> states_;
};

}  // namespace tandem
