#pragma once

#include <cstdint>
#include <memory>

#include "tandem/config/options/schedule_options.h"

namespace tandem {

/// Computes the learning rate as a pure function of the position in the run. So a
/// checkpoint needs no state of the schedule.
class LrSchedule {
 public:
  /// Makes a schedule for a run of `num_steps` optimizer steps. Does not check the
  /// values; make_lr_schedule() does.
  LrSchedule(const LrScheduleOptions& options, double base_lr, int64_t num_steps)
      : options_(options), base_lr_(base_lr), num_steps_(num_steps) {}

  /// Returns the learning rate of optimizer step `step` of the run, which is in epoch
  /// `epoch`. Both count from 0.
  [[nodiscard]] double lr(int64_t epoch, int64_t step) const;

 private:
  double without_warmup(int64_t epoch, int64_t step) const;

  LrScheduleOptions options_;
  double base_lr_;
  int64_t num_steps_;
};

/// Returns the schedule that options.kind selects, for a run of `epochs` epochs with
/// `steps_per_epoch` optimizer steps each.
///
/// "step" changes the learning rate between epochs. "cosine", "warmup_cosine" and
/// "one_cycle" change it in each step; after the last step of the run it stays
/// constant. During options.warmup_steps, every schedule changes it in each step.
///
/// Throws ConfigError if a value is out of range.
[[nodiscard]] std::unique_ptr<LrSchedule> make_lr_schedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch);

}  // namespace tandem
