#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Synchronizes ranks that step alone (Strategy::steps_alone()): at meeting points, to
/// which all ranks come, and in the middle of an epoch if a signal stops one of them.
///
/// A few times a second each rank starts an all-reduce, in a group for this purpose, of
/// its stop flag and its number of reached points. It continues to train and looks at
/// the result between steps. So no rank waits while it trains, and all ranks get the
/// same results in the same order. Ranks do something else together only after a result
/// that says so.
class StopExchange {
 public:
  /// `told`: returns whether a signal stops this rank. Collective.
  StopExchange(Communicator& comm, std::function<bool()> told);

  /// Returns whether all ranks stop now, each at its own step. Call it between steps.
  /// Never waits. Throws CommError if a rank is gone.
  bool stops();

  /// Waits at a meeting point for the other ranks. Returns false if all ranks stop
  /// instead, each at its own step, because some have not reached the point.
  bool meet();

 private:
  using Clock = std::chrono::steady_clock;

  enum class News { none, all_here, stop };

  void tell();
  News hear();

  std::unique_ptr<Communicator> group_;
  std::function<bool()> told_;
  // Meeting points that all ranks have reached, and that this rank has reached.
  int64_t passed_ = 0;
  int64_t arrived_ = 0;
  // The all-reduce in progress: the maximum of {stop flag, -arrived_}.
  at::Tensor values_;
  WorkPtr under_way_;
  Clock::time_point told_at_ = Clock::now();
};

}  // namespace tandem
