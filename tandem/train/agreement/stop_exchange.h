#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Brings together ranks that step alone (Strategy::steps_alone()): at points to which
/// all come, and in the middle of an epoch when one of them is told to stop.
///
/// A few times a second each rank tells the others, in an all-reduce of a group of its
/// own, whether it was told to stop and how many points it has come to, and goes on; it
/// looks at the answer between its steps. So nobody waits while it trains, and all
/// ranks get the same answers in the same order. Only behind one that says so do they
/// do anything else together.
class StopExchange {
 public:
  /// Collective. `told`: whether this rank was asked to stop.
  StopExchange(Communicator& comm, std::function<bool()> told);

  /// Between steps: whether all ranks stop now, each where it is. Never waits. Throws
  /// CommError when a rank is gone.
  bool stops();

  /// At a point: waits for the others. False when all ranks stop instead, each where it
  /// is: some have not come yet.
  bool meet();

 private:
  using Clock = std::chrono::steady_clock;

  enum class News { none, all_here, stop };

  void tell();
  News hear();

  std::unique_ptr<Communicator> group_;
  std::function<bool()> told_;
  // Points that all have come to, and that this rank has.
  int64_t passed_ = 0;
  int64_t arrived_ = 0;
  // What is under way: {told to stop, -arrived}, the most of each.
  at::Tensor values_;
  WorkPtr under_way_;
  Clock::time_point told_at_ = Clock::now();
};

}  // namespace tandem
