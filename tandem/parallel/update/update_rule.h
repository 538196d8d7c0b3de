#pragma once

#include <memory>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// Who updates the parameters of replicas, ranks that hold the same ones, and whose
/// optimizer has the state for it. All of it is collective among the replicas.
///
/// Replicated: every rank updates all. Sharded: each updates its equal share of every
/// segment, keeps the state for that only, and gives the result to the others: the same
/// bits. Source: ZeRO stage 1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
/// Training Trillion Parameter Models", SC 2020).
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// The optimizer's state becomes the first replica's, as far as this rank needs it.
  virtual void start() = 0;

  /// One pass of the optimizer over all trainable parameters. The executor is told.
  virtual void update(const StepScalars& step) = 0;

  /// The first replica's optimizer state becomes complete.
  virtual void collect_state() = 0;
};

/// `replicas` and what `parts` refers to outlive it; of `parts` the communicator is not
/// used. `automatic` is `replicated`.
///
/// Throws ConfigError where segments do not divide among the ranks that share out the
/// update (ModelArenaOptions::divisor).
std::unique_ptr<UpdateRule> make_update_rule(
    OptimizerState kind, Communicator& replicas, const StrategyParts& parts);

}  // namespace tandem
