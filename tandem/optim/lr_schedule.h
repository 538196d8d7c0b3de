#pragma once

#include <cstdint>
#include <memory>

#include "tandem/config/options/schedule_options.h"

namespace tandem {

/// The learning rate as a pure function of position, so resuming needs no state.
class LrSchedule {
 public:
  virtual ~LrSchedule() = default;

  /// `epoch` and `step` count from 0; `step` counts optimizer steps of the run.
  [[nodiscard]] virtual double lr(int64_t epoch, int64_t step) const = 0;
};

/// `epochs` and `steps_per_epoch` say how long the run is. "step" changes per
/// epoch; "cosine" and "one_cycle" change per step and end with the run. A step
/// after that has the learning rate of the end.
///
/// Throws ConfigError for a value out of range.
[[nodiscard]] std::unique_ptr<LrSchedule> make_lr_schedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch);

}  // namespace tandem
