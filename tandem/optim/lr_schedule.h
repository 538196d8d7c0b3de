#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

/// Settings of all schedules, with PyTorch's meanings.
struct LrScheduleOptions {
  // "constant", "step", "cosine" or "one_cycle".
  std::string name = "constant";
  // "step": multiply by gamma every step_size epochs.
  double gamma = 0.1;
  int64_t step_size = 1;
  // "cosine": the learning rate when the run is over.
  double min_lr = 0;
  // "one_cycle": torch.optim.lr_scheduler.OneCycleLR (cosine annealing); the
  // optimizer's lr is max_lr.
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  // Any schedule: its learning rate is multiplied by a factor that rises
  // linearly over this many first steps (the first has 1 / warmup_steps).
  int64_t warmup_steps = 0;
};

/// The learning rate as a pure function of position, so resuming needs no state.
class LrSchedule {
 public:
  virtual ~LrSchedule() = default;

  /// `epoch` and `step` count from 0; `step` counts optimizer steps of the run.
  virtual double lr(int64_t epoch, int64_t step) const = 0;
};

/// `epochs` and `steps_per_epoch` say how long the run is. "step" changes per
/// epoch; "cosine" and "one_cycle" change per step and end with the run. A step
/// after that has the learning rate of the end.
///
/// Throws ConfigError for an unknown name (naming the nearest) or a value out
/// of range.
std::unique_ptr<LrSchedule> make_lr_schedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch);

/// One row per schedule, for help texts.
struct LrScheduleEntry {
  const char* name;
  const char* help;
  std::unique_ptr<LrSchedule> (*make)(
      const LrScheduleOptions&, double base_lr, int64_t epochs,
      int64_t steps_per_epoch);
};
const std::vector<LrScheduleEntry>& lr_schedule_table();

}  // namespace tandem
