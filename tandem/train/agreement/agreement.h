#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/step_sums.h"

namespace tandem {

/// Chooses the steps after which ranks agree, about twice a second. All ranks use the
/// number of steps that rank 0 proposes, so the ranks' clocks need not be synchronized.
class AgreementTimes {
 public:
  /// Starts after `done` steps. An agreement is then due.
  explicit AgreementTimes(int64_t done = 0) : next_(done), last_(done) {}

  /// Returns whether an agreement is due after `done` steps.
  bool is_due(int64_t done) const {
    return done >= next_;
  }
  /// Returns a number of steps until the next agreement.
  int64_t propose(int64_t done) const;
  /// Notes an agreement after `done` steps. `steps` is the proposal of rank 0.
  void agreed(int64_t done, int64_t steps);

 private:
  using Clock = std::chrono::steady_clock;

  // Number of steps at the next agreement and at the last agreement.
  int64_t next_;
  int64_t last_;
  Clock::time_point last_time_ = Clock::now();
};

/// A decision about the run. All ranks make the same decision.
struct Decision {
  // Lowest rank that received a signal to stop; -1 if no rank received such a signal.
  int stopping_rank = -1;
  // True if the run saves a checkpoint: a rank received SIGUSR1, or the interval
  // between saves has passed on rank 0.
  bool save = false;
  // True if the run ends: the observer of a rank returned Next::stop.
  bool end = false;
  // True if all ranks have written their shares of a checkpoint.
  bool shares_written = false;
  // First step with a loss that is not finite, and a rank with this loss. Both are -1
  // if all losses are finite.
  int64_t bad_step = -1;
  int bad_rank = -1;
};

/// Turns events of single ranks into decisions that are equal on all ranks. Events are
/// a signal, a loss that is not finite, the end of an interval between saves, a written
/// share of a checkpoint, and an observer that returns Next::stop.
///
/// Ranks that wait for each other in each step agree about twice a second
/// (AgreementTimes); other ranks agree when they meet.
class Agreement {
 public:
  /// Prepares decisions of the ranks of `comm`. `minutes_between_saves` is the interval
  /// between saves; 0 turns these saves off.
  Agreement(Communicator& comm, double minutes_between_saves);

  /// Starts the intervals between agreements and between saves. Call this function
  /// before the first step of this process. `steps_done` is the number of completed
  /// steps of the run.
  void begin(int64_t steps_done);

  /// Stores this rank's sums of a step. The next decide() checks them, because reading
  /// the sums in every step would wait for the device.
  void note_loss(int64_t step, const StepSums& sums);

  /// Returns whether an agreement is due after `steps_done` steps. The result is the
  /// same on all ranks.
  bool is_due(int64_t steps_done) const {
    return times_.is_due(steps_done);
  }

  /// Makes a decision together with the other ranks. `end` is true if this rank's
  /// observer returned Next::stop, `share_written` if this rank has written its share
  /// of a checkpoint. Collective.
  Decision decide(int64_t steps_done, bool end = false, bool share_written = false);

  /// Starts a new interval between saves. Call this function after each save.
  void saved();

 private:
  using Clock = std::chrono::steady_clock;

  struct Unread {
    int64_t step;
    StepSums sums;
  };

  void read_losses();

  Communicator& comm_;
  double minutes_between_saves_;
  int64_t bad_step_ = -1;
  std::vector<Unread> unread_;
  AgreementTimes times_;
  Clock::time_point last_save_ = Clock::now();
};

}  // namespace tandem
