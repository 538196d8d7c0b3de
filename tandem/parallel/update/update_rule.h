#pragma once

#include <memory>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// A rule by which replicas (ranks with equal parameters) update their parameters. All
/// methods are collective among the replicas.
///
/// With OptimizerState::replicated, every rank updates all parameters. With
/// OptimizerState::sharded, each rank updates an equal share of every segment, uses
/// optimizer state only for its share, and sends the result to the other ranks. Both
/// rules give the same bits. Source: ZeRO stage 1 (Rajbhandari et al., "ZeRO: Memory
/// Optimizations Toward Training Trillion Parameter Models", SC 2020).
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// Copies the first replica's optimizer state to the other replicas. Each replica
  /// gets only the part that it uses.
  virtual void start() = 0;

  /// Updates all trainable parameters and calls the executor's parameters_changed().
  virtual void update(const StepScalars& step) = 0;

  /// Gathers the complete optimizer state at the first replica.
  virtual void collect_state() = 0;
};

/// Makes the update rule for `kind`; `automatic` means `replicated`.
///
/// `replicas` and the objects in `parts` must outlive the update rule. parts.comm is
/// not used.
///
/// Throws ConfigError if `kind` is `sharded` and segments do not divide evenly among
/// the replicas (ModelArenaOptions::divisor).
std::unique_ptr<UpdateRule> make_update_rule(
    OptimizerState kind, Communicator& replicas, const StrategyParts& parts);

}  // namespace tandem
