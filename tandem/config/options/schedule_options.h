#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Learning rate schedules.
enum class ScheduleKind {
  constant,
  step,
  multistep,
  exponential,
  linear,
  polynomial,
  cosine,
  cosine_restarts,
  warmup_cosine,
  warmup_stable_decay,
  one_cycle,
  plateau
};
template <>
struct Choices<ScheduleKind> {
  static constexpr Choice<ScheduleKind> rows[] = {
      {ScheduleKind::constant, "constant", "always lr"},
      {ScheduleKind::step, "step", "lr times gamma every step_size epochs"},
      {ScheduleKind::multistep, "multistep",
       "lr times gamma at each of the milestones"},
      {ScheduleKind::exponential, "exponential", "lr times gamma every epoch"},
      {ScheduleKind::linear, "linear",
       "linear from start_factor * lr to end_factor * lr in warmup_steps, or in the "
       "whole run if warmup_steps is 0"},
      {ScheduleKind::polynomial, "polynomial",
       "lr times the share of steps that remain, to the power `power`"},
      {ScheduleKind::cosine, "cosine", "half a cosine from lr down to min_lr"},
      {ScheduleKind::cosine_restarts, "cosine_restarts",
       "half cosines from lr down to min_lr, the first in restart_epochs epochs, each "
       "restart_factor times as long as the one before"},
      {ScheduleKind::warmup_cosine, "warmup_cosine",
       "linear from start_factor * lr to lr in warmup_steps, then half a cosine down "
       "to "
       "min_lr in the remaining steps"},
      {ScheduleKind::warmup_stable_decay, "warmup_stable_decay",
       "up to lr in warmup_steps, constant, then down to min_lr in the last share "
       "decay_share of the steps"},
      {ScheduleKind::one_cycle, "one_cycle",
       "up from lr / div_factor to lr, then down to almost 0"},
      {ScheduleKind::plateau, "plateau",
       "lr times gamma, at least min_lr, if plateau_patience evaluations have not "
       "improved the loss"}};
};

/// Shape of the decay of ScheduleKind::warmup_stable_decay.
enum class DecayShape { linear, one_minus_sqrt };
template <>
struct Choices<DecayShape> {
  static constexpr Choice<DecayShape> rows[] = {
      {DecayShape::linear, "linear"},
      {DecayShape::one_minus_sqrt, "one_minus_sqrt",
       "1 minus the square root of the share of the decay that is done"}};
};

/// Settings of all learning rate schedules, with the same meanings as in PyTorch.
struct LrScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  // step, multistep and exponential: the learning rate is multiplied by gamma every
  // step_size epochs, at each of the milestones, or every epoch. plateau: by gamma when
  // the loss does not improve.
  double gamma = 0.7;
  int64_t step_size = 1;
  // multistep: numbers of epochs in ascending order, such as "30,60,80".
  std::string milestones = {};
  // Learning rate at the end of the run, or of each cosine. plateau: the lowest.
  double min_lr = 0;
  // warmup_cosine: SequentialLR of LinearLR(start_factor, total_iters=warmup_steps) and
  // CosineAnnealingLR over the remaining steps. linear: LinearLR(start_factor,
  // end_factor).
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  // polynomial: PolynomialLR.
  double power = 1;
  // cosine_restarts: T_0 and T_mult of CosineAnnealingWarmRestarts.
  int64_t restart_epochs = 10;
  int64_t restart_factor = 1;
  // warmup_stable_decay. Sources: Hu et al., "MiniCPM", 2024; Haegele et al., "Scaling
  // Laws and Compute-Optimal Training Beyond Fixed Training Durations", 2024.
  double decay_share = 0.2;
  DecayShape decay_shape = DecayShape::linear;
  // one_cycle: torch.optim.lr_scheduler.OneCycleLR with cosine annealing; max_lr is the
  // optimizer's lr.
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  // plateau: patience, threshold (relative) and cooldown of ReduceLROnPlateau, counted
  // in evaluations.
  int64_t plateau_patience = 10;
  double plateau_threshold = 1e-4;
  int64_t plateau_cooldown = 0;
  // All schedules: number of warmup steps at the start of the run. In these steps, all
  // schedules except linear and warmup_cosine multiply the learning rate by a factor
  // that rises linearly from 1 / warmup_steps to 1. With `cosine`, the cosine thus
  // begins in the first step, as with ChainedScheduler.
  int64_t warmup_steps = 0;

  template <typename Table>
  static void describe(Table& table) {
    using O = LrScheduleOptions;
    using K = ScheduleKind;
    table.section("schedule");
    table.add("schedule", &O::kind, "learning rate schedule").at_the_end();
    table
        .add(
            "gamma", &O::gamma,
            "factor on the learning rate every step_size epochs, at each milestone, "
            "every epoch, or on a plateau of the loss")
        .between(0, kLarge)
        .needs(
            "schedule", &O::kind, {K::step, K::multistep, K::exponential, K::plateau});
    table
        .add(
            "step_size", &O::step_size,
            "epochs between two changes of the learning rate")
        .between(1, 1e9)
        .needs("schedule", &O::kind, {K::step});
    table
        .add(
            "milestones", &O::milestones,
            "epochs after which the learning rate changes, such as '30,60,80'")
        .needs("schedule", &O::kind, {K::multistep});
    table
        .add(
            "min_lr", &O::min_lr,
            "learning rate at the end of the run, or of each cosine; for plateau, the "
            "lowest")
        .between(0, kLarge)
        .needs(
            "schedule", &O::kind,
            {K::cosine, K::cosine_restarts, K::warmup_cosine, K::warmup_stable_decay,
             K::plateau});
    table
        .add(
            "start_factor", &O::start_factor,
            "first learning rate divided by lr, 0 to 1")
        .between(0, 1)
        .needs("schedule", &O::kind, {K::linear, K::warmup_cosine});
    table.add("end_factor", &O::end_factor, "last learning rate divided by lr, 0 to 1")
        .between(0, 1)
        .needs("schedule", &O::kind, {K::linear});
    table.add("power", &O::power, "exponent of the share of steps that remain")
        .between(0, kLarge)
        .needs("schedule", &O::kind, {K::polynomial});
    table.add("restart_epochs", &O::restart_epochs, "epochs of the first cosine")
        .between(1, 1e9)
        .needs("schedule", &O::kind, {K::cosine_restarts});
    table
        .add(
            "restart_factor", &O::restart_factor,
            "length of a cosine divided by the length of the cosine before")
        .between(1, 1e6)
        .needs("schedule", &O::kind, {K::cosine_restarts});
    table
        .add(
            "decay_share", &O::decay_share,
            "share of the steps in which the learning rate decays, 0 to 1")
        .between(0, 1)
        .needs("schedule", &O::kind, {K::warmup_stable_decay});
    table.add("decay_shape", &O::decay_shape, "shape of the decay")
        .needs("schedule", &O::kind, {K::warmup_stable_decay});
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
            "plateau_patience", &O::plateau_patience,
            "evaluations without a better loss before the learning rate falls")
        .between(0, 1e9)
        .needs("schedule", &O::kind, {K::plateau});
    table
        .add(
            "plateau_threshold", &O::plateau_threshold,
            "smallest relative decrease of the loss that counts, 0 to 1")
        .between(0, 1)
        .needs("schedule", &O::kind, {K::plateau});
    table
        .add(
            "plateau_cooldown", &O::plateau_cooldown,
            "evaluations after a fall that do not count")
        .between(0, 1e9)
        .needs("schedule", &O::kind, {K::plateau});
    table
        .add(
            "warmup_steps", &O::warmup_steps,
            "first steps, in which the learning rate rises linearly; the rise is a "
            "factor on the schedule, except with linear and warmup_cosine")
        .between(0, kMany);
  }
};

}  // namespace tandem
