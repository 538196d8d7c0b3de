#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/config/options/schedule_options.h"

namespace tandem {

/// Computes the learning rate as a pure function of the position in the run. So a
/// checkpoint needs no state of the schedule.
class LrSchedule {
 public:
  /// Makes a schedule for a run of `epochs` epochs with `steps_per_epoch` optimizer
  /// steps each. Does not check the values; make_lr_schedule() does.
  LrSchedule(
      const LrScheduleOptions& options, double base_lr, int64_t epochs,
      int64_t steps_per_epoch);

  /// Returns the learning rate of optimizer step `step` of the run, which is in epoch
  /// `epoch`. Both count from 0.
  [[nodiscard]] double lr(int64_t epoch, int64_t step) const;

 private:
  int64_t num_decays(int64_t epoch) const;
  double without_warmup(int64_t epoch, int64_t step) const;

  LrScheduleOptions options_;
  double base_lr_;
  int64_t num_steps_;
  int64_t steps_per_epoch_;
  std::vector<int64_t> milestones_;
};

/// Returns the schedule that options.kind selects, for a run of `epochs` epochs with
/// `steps_per_epoch` optimizer steps each.
///
/// "step", "multistep" and "exponential" change the learning rate between epochs. The
/// other schedules except "constant" change it in each step; after the last step of the
/// run it stays constant, except with "cosine_restarts". During options.warmup_steps,
/// every schedule changes it in each step.
///
/// Throws ConfigError if a value is out of range.
[[nodiscard]] std::unique_ptr<LrSchedule> make_lr_schedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch);

}  // namespace tandem
