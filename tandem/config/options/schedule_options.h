#pragma once

#include <cstdint>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Learning rate schedules.
enum class ScheduleKind { constant, step, cosine, warmup_cosine, one_cycle };
template <>
struct Choices<ScheduleKind> {
  static constexpr Choice<ScheduleKind> rows[] = {
      {ScheduleKind::constant, "constant", "always lr"},
      {ScheduleKind::step, "step", "lr times gamma every step_size epochs"},
      {ScheduleKind::cosine, "cosine", "half a cosine from lr down to min_lr"},
      {ScheduleKind::warmup_cosine, "warmup_cosine",
       "linear from start_factor * lr to lr in warmup_steps, then half a cosine down "
       "to "
       "min_lr in the remaining steps"},
      {ScheduleKind::one_cycle, "one_cycle",
       "up from lr / div_factor to lr, then down to almost 0"}};
};

/// Settings of all learning rate schedules, with the same meanings as in PyTorch.
struct LrScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  // step: the learning rate is multiplied by gamma every step_size epochs.
  double gamma = 0.7;
  int64_t step_size = 1;
  // cosine and warmup_cosine: learning rate at the end of the run.
  double min_lr = 0;
  // warmup_cosine: SequentialLR of LinearLR(start_factor, total_iters=warmup_steps) and
  // CosineAnnealingLR over the remaining steps.
  double start_factor = 1.0 / 3;
  // one_cycle: torch.optim.lr_scheduler.OneCycleLR with cosine annealing; max_lr is the
  // optimizer's lr.
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  // All schedules: number of warmup steps at the start of the run. In these steps, all
  // schedules except warmup_cosine multiply the learning rate by a factor that rises
  // linearly from 1 / warmup_steps to 1. With `cosine`, the cosine thus begins in the
  // first step, as with ChainedScheduler.
  int64_t warmup_steps = 0;

  template <typename Table>
  static void describe(Table& table) {
    using O = LrScheduleOptions;
    using K = ScheduleKind;
    table.section("schedule");
    table.add("schedule", &O::kind, "learning rate schedule").at_the_end();
    table.add("gamma", &O::gamma, "factor on the learning rate every step_size epochs")
        .between(0, kLarge)
        .needs("schedule", &O::kind, {K::step});
    table
        .add(
            "step_size", &O::step_size,
            "epochs between two changes of the learning rate")
        .between(1, 1e9)
        .needs("schedule", &O::kind, {K::step});
    table.add("min_lr", &O::min_lr, "learning rate at the end of the run")
        .between(0, kLarge)
        .needs("schedule", &O::kind, {K::cosine, K::warmup_cosine});
    table
        .add(
            "start_factor", &O::start_factor,
            "first learning rate divided by lr, 0 to 1")
        .between(0, 1)
        .needs("schedule", &O::kind, {K::warmup_cosine});
    table
        .add(
            "pct_start", &O::pct_start,
            "share of the steps in which the learning rate rises, 0 to 1")
        .between(0, 1)
        .needs("schedule", &O::kind, {K::one_cycle});
    table.add("div_factor", &O::div_factor, "lr divided by the first learning rate")
        .between(kTiny, kLarge)
        .needs("schedule", &O::kind, {K::one_cycle});
    table
        .add(
            "final_div_factor", &O::final_div_factor,
            "first learning rate divided by the last")
        .between(kTiny, kLarge)
        .needs("schedule", &O::kind, {K::one_cycle});
    table
        .add(
            "warmup_steps", &O::warmup_steps,
            "first steps, in which the learning rate rises linearly; except with "
            "warmup_cosine, the rise is a factor on the schedule")
        .between(0, kMany);
  }
};

}  // namespace tandem
