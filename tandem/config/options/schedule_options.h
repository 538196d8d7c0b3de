#pragma once

#include <cstdint>

#include "tandem/config/options/setting.h"

namespace tandem {

enum class ScheduleKind { constant, step, cosine, one_cycle };
template <>
struct Choices<ScheduleKind> {
  static constexpr Choice<ScheduleKind> rows[] = {
      {ScheduleKind::constant, "constant", "always lr"},
      {ScheduleKind::step, "step", "times gamma every step_size epochs"},
      {ScheduleKind::cosine, "cosine", "half a cosine from lr to min_lr"},
      {ScheduleKind::one_cycle, "one_cycle",
       "up from lr / div_factor to lr, then down to almost 0"}};
};

/// Settings of all learning rate schedules, with PyTorch's meanings.
struct LrScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  // step: multiply by gamma every step_size epochs.
  double gamma = 0.7;
  int64_t step_size = 1;
  // cosine: the learning rate when the run is over.
  double min_lr = 0;
  // one_cycle: torch.optim.lr_scheduler.OneCycleLR (cosine annealing); the optimizer's
  // lr is max_lr.
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  // Any schedule: its learning rate is multiplied by a factor that rises linearly over
  // this many first steps (the first has 1 / warmup_steps).
  int64_t warmup_steps = 0;

  template <typename Table>
  static void describe(Table& table) {
    using O = LrScheduleOptions;
    using K = ScheduleKind;
    table.section("schedule");
    table.add("schedule", &O::kind, "how lr changes").at_the_end();
    table.add("gamma", &O::gamma, "factor on the learning rate")
        .between(0, kLarge)
        .needs("schedule", &O::kind, {K::step});
    table.add("step_size", &O::step_size, "epochs between factors")
        .between(1, 1e9)
        .needs("schedule", &O::kind, {K::step});
    table.add("min_lr", &O::min_lr, "the last learning rate")
        .between(0, kLarge)
        .needs("schedule", &O::kind, {K::cosine});
    table.add("pct_start", &O::pct_start, "share of the steps in which lr rises")
        .between(0, 1)
        .needs("schedule", &O::kind, {K::one_cycle});
    table.add("div_factor", &O::div_factor, "lr / first lr")
        .between(kTiny, kLarge)
        .needs("schedule", &O::kind, {K::one_cycle});
    table.add("final_div_factor", &O::final_div_factor, "first lr / last lr")
        .between(kTiny, kLarge)
        .needs("schedule", &O::kind, {K::one_cycle});
    table.add("warmup_steps", &O::warmup_steps, "steps over which lr rises")
        .between(0, kMany);
  }
};

}  // namespace tandem
