#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/step_sums.h"

namespace tandem {

/// What the ranks decided together.
struct Decision {
  // The first rank that a signal asked to stop; -1: none.
  int stopping_rank = -1;
  // SIGUSR1 at some rank, or rank 0's clock.
  bool save = false;
  // Some rank's observer wants the run to end.
  bool end = false;
  // First step whose loss was not finite at some rank, and that rank.
  int64_t bad_step = -1;
  int bad_rank = -1;
};

/// Turns what happens to one rank (a signal, a loss that is not finite, minutes that
/// pass) into decisions that all ranks take at the same step.
///
/// It asks about twice a second: rank 0 says after how many steps, so that the ranks'
/// clocks need not agree.
class Agreement {
 public:
  /// `minutes_between_saves`: 0 for never.
  Agreement(Communicator& comm, double minutes_between_saves);

  /// Before the first step of this process, after `steps_done` of the run.
  void begin(int64_t steps_done);

  /// This rank's sums of a step. They are read when the ranks decide: reading them now
  /// would wait for the device in every step.
  void note_loss(int64_t step, const StepSums& sums);

  /// Whether it is time to ask, after `steps_done` steps. Equal on all ranks.
  bool is_due(int64_t steps_done) const {
    return steps_done >= next_;
  }

  /// `end`: whether this rank's observer wants the run to end. Collective.
  Decision decide(int64_t steps_done, bool end = false);

  /// Starts the minutes again.
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
  int64_t next_ = 0;
  int64_t last_ = 0;
  Clock::time_point last_time_ = Clock::now();
  Clock::time_point last_save_ = Clock::now();
};

}  // namespace tandem
