#pragma once

#include <vector>

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
  /// `kind` automatic means `replicated`. `replicas` and the objects in `parts` must
  /// outlive this object. parts.comm is not used.
  ///
  /// Throws ConfigError if `kind` is `sharded` and segments do not divide evenly among
  /// the replicas (ModelArenaOptions::divisor).
  UpdateRule(OptimizerState kind, Communicator& replicas, const StrategyParts& parts);

  /// Copies the first replica's optimizer state to the other replicas. Each replica
  /// gets only the part that it uses.
  void start();

  /// Updates all trainable parameters and calls the executor's parameters_changed().
  void update(const StepScalars& step);

  /// Gathers the complete optimizer state at the first replica.
  void collect_state();

 private:
  ArenaRange share_of(const ArenaRange& segment) const;
  at::Tensor whole_of(const Arena& arena, const ArenaRange& range) const;

  Communicator& replicas_;
  StrategyParts parts_;
  bool sharded_;
  // The trainable segments, and the parts that this rank updates.
  std::vector<ArenaRange> trainable_;
  std::vector<ArenaRange> own_;
};

}  // namespace tandem
