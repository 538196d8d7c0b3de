#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/comm/communicator.h"

namespace tandem {

/// Synchronizes ranks whose steps do not wait for each other (Strategy::steps_alone()).
/// The ranks synchronize at meeting points, which are calls of meet() by all ranks.
/// After a rank receives a signal, all ranks also synchronize in the middle of an
/// epoch.
///
/// A few times a second, each rank starts an all-reduce in a separate group. The
/// all-reduce combines the ranks' stop flags and the numbers of meeting points that
/// they have reached. A rank continues to train and checks between steps whether the
/// result has arrived, so no rank waits while it trains. All ranks get the same results
/// in the same order. They start other collective operations only after a result shows
/// that all ranks are at a meeting point, or that the ranks stop.
class StopExchange {
 public:
  /// Makes a separate group of the ranks of `comm`. `told` returns whether this rank
  /// received a signal to stop. Collective.
  StopExchange(Communicator& comm, std::function<bool()> told);

  /// Returns whether all ranks stop now, possibly at different steps. Call this
  /// function between steps. Never waits. Throws CommError if a rank has failed.
  bool stops();

  /// Waits at a meeting point until all ranks have reached it, and returns true.
  /// Returns false if a signal stops the run first. All ranks then stop, possibly at
  /// different steps.
  bool meet();

 private:
  using Clock = std::chrono::steady_clock;

  enum class News { none, all_here, stop };

  void tell();
  News hear();

  std::unique_ptr<Communicator> group_;
  std::function<bool()> told_;
  // Number of meeting points that all ranks have reached, and number of meeting points
  // that this rank has reached.
  int64_t passed_ = 0;
  int64_t arrived_ = 0;
  // The all-reduce in progress: {stop flag, -arrived_} of this rank, and then the
  // maximum of each number over the ranks.
  at::Tensor values_;
  WorkPtr under_way_;
  Clock::time_point told_at_ = Clock::now();
};

/// Returns the position of the rank that made most steps or, if `first` is true, of
/// rank 0. Collective.
Position common_position(const Position& mine, bool first, Communicator& comm);

}  // namespace tandem
