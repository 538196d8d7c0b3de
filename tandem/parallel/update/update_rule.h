#pragma once

#include <vector>

#include "tandem/parallel/reduce/grad_reducer.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// A rule by which replicas (ranks with equal parameters) update their parameters. All
/// methods are collective among the replicas.
///
/// With Sharding::none, every rank has the sums of all gradients and updates all
/// parameters. Otherwise, each rank has the sums of its part of every bucket
/// (Bucket::part()), updates this part, uses optimizer state only for it, and sends the
/// result to the other ranks, except with Sharding::parameters. Equal gradients give
/// both rules the same bits. Source: ZeRO stage 1 (Rajbhandari et al., "ZeRO: Memory
/// Optimizations Toward Training Trillion Parameter Models", SC 2020).
class UpdateRule {
 public:
  /// `kind` automatic means `none`. `replicas` and the objects in `parts` must
  /// outlive this object. parts.comm is not used.
  ///
  /// Throws ConfigError if buckets do not divide evenly among the replicas
  /// (ModelArenaOptions::divisor).
  UpdateRule(Sharding kind, Communicator& replicas, const StrategyParts& parts);

  /// Returns the ranks that need the sums of gradients.
  SumGoesTo sum_goes_to() const {
    return sharded_ ? SumGoesTo::owners : SumGoesTo::all_ranks;
  }

  /// Copies the first replica's optimizer state to the other replicas. Each replica
  /// gets only the part that it uses.
  void start();

  /// Returns the sum of the squares of all gradients, from squares_of(): a float64
  /// scalar tensor on the gradients' device.
  at::Tensor gradient_squares();

  /// Calls the optimizer's GradScaler, if there is one, so that all replicas make the
  /// same decision.
  void unscale(StepScalars& step);

  /// Updates all trainable parameters and calls the executor's parameters_changed().
  void update(const StepScalars& step);

  /// Gathers the complete optimizer state at the first replica.
  void collect_state();

 private:
  const std::vector<Bucket>& buckets() const {
    return parts_.arenas.parameters().layout().buckets();
  }

  Communicator& replicas_;
  StrategyParts parts_;
  bool sharded_;
  bool sends_parameters_;
  // The ranges that this rank updates: all trainable segments, or its part of each
  // bucket.
  std::vector<ArenaRange> own_;
};

}  // namespace tandem
