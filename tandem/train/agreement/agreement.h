#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/step_sums.h"

namespace tandem {

/// Decision that is the same on all ranks.
struct Decision {
  // The first rank that a signal stops; -1: none.
  int stopping_rank = -1;
  // Save a checkpoint: a rank got SIGUSR1, or it is time by rank 0's clock.
  bool save = false;
  // End the run: the observer of a rank returned Next::stop.
  bool end = false;
  // First step whose loss was not finite on a rank, and that rank; -1: none.
  int64_t bad_step = -1;
  int bad_rank = -1;
};

/// Turns events of one rank (a signal, a loss that is not finite, a passed interval)
/// into decisions that all ranks apply at the same step.
///
/// Ranks agree about twice a second. Rank 0 chooses the number of steps until the next
/// agreement, so the ranks' clocks need not agree.
class Agreement {
 public:
  /// `minutes_between_saves`: interval of saves, 0: none.
  Agreement(Communicator& comm, double minutes_between_saves);

  /// Call it before the first step of this process. `steps_done`: completed steps of
  /// the run.
  void begin(int64_t steps_done);

  /// Stores this rank's sums of a step until the ranks agree. Reading them now would
  /// wait for the device in every step.
  void note_loss(int64_t step, const StepSums& sums);

  /// Returns whether an agreement is due after `steps_done` steps. Equal on all ranks.
  bool is_due(int64_t steps_done) const {
    return steps_done >= next_;
  }

  /// Agrees with the other ranks. `end`: this rank's observer returned Next::stop.
  /// Collective.
  Decision decide(int64_t steps_done, bool end = false);

  /// Starts a new interval of saves.
  void saved();

 private:
  using Clock = std::chrono::steady_clock;

  struct Unread {
    int64_t step;
    StepSums sums;
  };

  int64_t steps_until_next(int64_t steps_done);
  void read_losses();

  Communicator& comm_;
  double minutes_between_saves_;
  int64_t bad_step_ = -1;
  std::vector<Unread> unread_;
  // Completed steps at the next and at the last agreement.
  int64_t next_ = 0;
  int64_t last_ = 0;
  Clock::time_point last_time_ = Clock::now();
  Clock::time_point last_save_ = Clock::now();
};

}  // namespace tandem
