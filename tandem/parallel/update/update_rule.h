#pragma once

#include <cstddef>
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

  /// Copies the optimizer state that all replicas use from the first replica to the
  /// others. Each replica keeps the parts that only it uses.
  void start();

  /// Returns the sum of the squares of all gradients, from squares_of(): a float64
  /// scalar tensor on the gradients' device.
  at::Tensor gradient_squares();

  /// Calls the optimizer's GradScaler, if there is one, so that all replicas make the
  /// same decision.
  void unscale(StepScalars& step);

  /// Updates all trainable parameters and calls the executor's parameters_changed().
  void update(const StepScalars& step);

  /// Returns whether replicas use different parts of the optimizer's state.
  bool divides_state() const {
    return sharded_;
  }

  /// Calls `visit` with pieces of the state (Strategy::visit_state()). A bucket is
  /// gathered at the replica that visits it, and released afterwards.
  void visit_state(const StateVisitor& visit, bool may_visit);

  /// Returns the state of this rank, and the parts of it that this rank uses.
  TrainingState state_to_load();

 private:
  std::vector<int> visitors_of_buckets(
      const TrainingState& outside, bool may_visit) const;
  std::vector<StatePart> own_parts(const ArenaLayout& layout) const;
  std::vector<StatePart> own_parts_of_model() const;
  std::vector<Arena*> divided_arenas() const;
  std::vector<TrainingState> pieces() const;
  const std::vector<Bucket>& buckets() const {
    return parts_.arenas.parameters().layout().buckets();
  }

  Communicator& replicas_;
  StrategyParts parts_;
  bool sharded_;
  // False if every replica has all parameters.
  bool divides_parameters_;
  // The ranges that this rank updates: all trainable segments, or its part of each
  // bucket.
  std::vector<ArenaRange> own_;
};

}  // namespace tandem
