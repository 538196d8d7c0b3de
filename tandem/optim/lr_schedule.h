#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "tandem/config/options/schedule_options.h"

namespace tandem {

/// State of the schedule "plateau", after the evaluations so far.
struct PlateauState {
  // Lowest loss that was lower than the one before by plateau_threshold.
  double best = std::numeric_limits<double>::infinity();
  // Evaluations since `best` or since the last reduction.
  int64_t bad_evaluations = 0;
  // Evaluations that will not count, because of a reduction.
  int64_t cooldown = 0;
  // Number of times that gamma multiplies the learning rate.
  int64_t reductions = 0;
};

/// Computes the learning rate as a pure function of the position in the run and, for
/// the schedule "plateau", of the evaluations before it (PlateauState). So a checkpoint
/// needs no other state of the schedule. Not thread-safe.
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

  /// Counts an evaluation, which only "plateau" uses. Source: ReduceLROnPlateau in
  /// torch/optim/lr_scheduler.py with mode="min" and threshold_mode="rel".
  void note_evaluation(double loss);

  /// Returns the state for a checkpoint.
  const PlateauState& plateau() const {
    return plateau_;
  }
  /// Continues from the state of a checkpoint.
  void continue_from(const PlateauState& plateau) {
    plateau_ = plateau;
  }

 private:
  double reduced_lr() const;
  int64_t num_decays(int64_t epoch) const;
  double without_warmup(int64_t epoch, int64_t step) const;

  LrScheduleOptions options_;
  double base_lr_;
  int64_t num_steps_;
  int64_t steps_per_epoch_;
  std::vector<int64_t> milestones_;
  PlateauState plateau_;
};

/// Returns the schedule that options.kind selects, for a run of `epochs` epochs with
/// `steps_per_epoch` optimizer steps each.
///
/// "step", "multistep" and "exponential" change the learning rate between epochs, and
/// "plateau" after evaluations. The other schedules except "constant" change it in each
/// step; after the last step of the run it stays constant, except with
/// "cosine_restarts". During options.warmup_steps, every schedule changes it in each
/// step.
///
/// Throws ConfigError if a value is out of range.
[[nodiscard]] std::unique_ptr<LrSchedule> make_lr_schedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch);

}  // namespace tandem
