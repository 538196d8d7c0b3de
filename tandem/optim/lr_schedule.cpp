#include "tandem/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/config/fields.h"
#include "tandem/config/milestones.h"

namespace tandem {

namespace {

constexpr double kPi = 3.14159265358979323846;

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Interpolates from `start` to `end` along half a cosine while `part` goes from 0 to 1.
double anneal(double start, double end, double part) {
  return end + (start - end) * (1 + std::cos(kPi * part)) / 2;
}

double cosine(double start, double end, int64_t step, int64_t num_steps) {
  return step >= num_steps ? end : anneal(start, end, ratio(step, num_steps));
}

double one_cycle(
    const LrScheduleOptions& options, double max_lr, int64_t step, int64_t num_steps) {
  const double initial_lr = max_lr / options.div_factor;
  const double min_lr = initial_lr / options.final_div_factor;
  // Steps at which the rate is highest and at which the run ends. `top` may be
  // fractional. It is below 0 if the rate decreases from the first step.
  const double top = options.pct_start * static_cast<double>(num_steps) - 1;
  const auto last = static_cast<double>(num_steps - 1);
  const auto at = static_cast<double>(step);
  if (at < top) {
    return anneal(initial_lr, max_lr, at / top);
  }
  const double part = last > top ? (at - top) / (last - top) : 0;
  return anneal(max_lr, min_lr, std::min(part, 1.0));
}

// Source: LinearLR in torch/optim/lr_scheduler.py.
double linear(const LrScheduleOptions& options, int64_t step, int64_t num_steps) {
  const int64_t total = options.warmup_steps > 0 ? options.warmup_steps : num_steps;
  const double part = step >= total ? 1 : ratio(step, total);
  return options.start_factor + (options.end_factor - options.start_factor) * part;
}

// Source: CosineAnnealingWarmRestarts in torch/optim/lr_scheduler.py. `cycle` is the
// number of steps of the first cosine.
double cosine_restarts(
    const LrScheduleOptions& options, double base_lr, int64_t step, int64_t cycle) {
  if (cycle == 0) {
    return base_lr;
  }
  if (options.restart_factor == 1) {
    step %= cycle;
  }
  while (step >= cycle) {
    step -= cycle;
    cycle *= options.restart_factor;
  }
  return cosine(base_lr, options.min_lr, step, cycle);
}

// Sources: MiniCPM (2024) for the schedule; Haegele et al. (2024) for one_minus_sqrt.
double stable_decay(
    const LrScheduleOptions& options, double base_lr, int64_t step, int64_t num_steps) {
  const double length = options.decay_share * static_cast<double>(num_steps);
  const double into =
      static_cast<double>(step) - (static_cast<double>(num_steps) - length);
  if (into <= 0) {
    return base_lr;
  }
  const double part = std::min(into / length, 1.0);
  const double left =
      1 - (options.decay_shape == DecayShape::linear ? part : std::sqrt(part));
  return options.min_lr + (base_lr - options.min_lr) * left;
}

// Source: LinearLR, CosineAnnealingLR and SequentialLR in torch/optim/lr_scheduler.py.
double warmup_cosine(
    const LrScheduleOptions& options, double base_lr, int64_t step, int64_t num_steps) {
  const int64_t warmup = options.warmup_steps;
  if (step >= warmup) {
    return cosine(base_lr, options.min_lr, step - warmup, num_steps - warmup);
  }
  return base_lr *
         (options.start_factor + (1 - options.start_factor) * ratio(step, warmup));
}

void check_count(const char* name, int64_t value) {
  if (value < 0) {
    throw ConfigError(fmt::format(
        "[schedule] {} is {}, expected at least 0; change {}", name, value, name));
  }
}

}  // namespace

LrSchedule::LrSchedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch)
    : options_(options),
      base_lr_(base_lr),
      num_steps_(epochs * steps_per_epoch),
      steps_per_epoch_(steps_per_epoch) {
  if (options.kind == ScheduleKind::multistep) {
    milestones_ = parse_milestones(options.milestones);
  }
}

// Returns the number of times that gamma multiplies the learning rate.
int64_t LrSchedule::num_decays(int64_t epoch) const {
  switch (options_.kind) {
    case ScheduleKind::multistep:
      return std::upper_bound(milestones_.begin(), milestones_.end(), epoch) -
             milestones_.begin();
    case ScheduleKind::exponential:
      return epoch;
    default:
      return epoch / options_.step_size;
  }
}

double LrSchedule::without_warmup(int64_t epoch, int64_t step) const {
  switch (options_.kind) {
    case ScheduleKind::step:
    case ScheduleKind::multistep:
    case ScheduleKind::exponential:
      return base_lr_ *
             std::pow(options_.gamma, static_cast<double>(num_decays(epoch)));
    case ScheduleKind::linear:
      return base_lr_ * linear(options_, step, num_steps_);
    case ScheduleKind::polynomial:
      return base_lr_ *
             std::pow(
                 step >= num_steps_ ? 0 : ratio(num_steps_ - step, num_steps_),
                 options_.power);
    case ScheduleKind::cosine:
      return cosine(base_lr_, options_.min_lr, step, num_steps_);
    case ScheduleKind::cosine_restarts:
      return cosine_restarts(
          options_, base_lr_, step, options_.restart_epochs * steps_per_epoch_);
    case ScheduleKind::warmup_cosine:
      return warmup_cosine(options_, base_lr_, step, num_steps_);
    case ScheduleKind::warmup_stable_decay:
      return stable_decay(options_, base_lr_, step, num_steps_);
    case ScheduleKind::one_cycle:
      return one_cycle(options_, base_lr_, step, num_steps_);
    case ScheduleKind::plateau:
      return reduced_lr();
    default:
      return base_lr_;
  }
}

// Multiplies as often as ReduceLROnPlateau does, and like it leaves out changes that
// are at most 1e-8.
double LrSchedule::reduced_lr() const {
  double lr = base_lr_;
  for (int64_t i = 0; i < plateau_.reductions; ++i) {
    const double reduced = std::max(lr * options_.gamma, options_.min_lr);
    if (lr - reduced <= 1e-8) {
      break;
    }
    lr = reduced;
  }
  return lr;
}

void LrSchedule::note_evaluation(double loss) {
  if (options_.kind != ScheduleKind::plateau) {
    return;
  }
  auto& state = plateau_;
  if (loss < state.best * (1 - options_.plateau_threshold)) {
    state.best = loss;
    state.bad_evaluations = 0;
  } else {
    ++state.bad_evaluations;
  }
  if (state.cooldown > 0) {
    --state.cooldown;
    state.bad_evaluations = 0;
  }
  if (state.bad_evaluations > options_.plateau_patience) {
    ++state.reductions;
    state.cooldown = options_.plateau_cooldown;
    state.bad_evaluations = 0;
  }
}

double LrSchedule::lr(int64_t epoch, int64_t step) const {
  const double full = without_warmup(epoch, step);
  const int64_t warmup = options_.warmup_steps;
  const bool warms_up_itself = options_.kind == ScheduleKind::warmup_cosine ||
                               options_.kind == ScheduleKind::linear;
  return step >= warmup || warms_up_itself
             ? full
             : full * static_cast<double>(step + 1) / static_cast<double>(warmup);
}

std::unique_ptr<LrSchedule> make_lr_schedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch) {
  check_options(options);
  // The optimizer's check accepts -1, because -1 is its value for an unset lr.
  if (!std::isfinite(base_lr) || base_lr < 0) {
    throw ConfigError(fmt::format(
        "[schedule] lr is {}, expected a number from 0; change lr", base_lr));
  }
  check_count("epochs", epochs);
  check_count("steps_per_epoch", steps_per_epoch);
  return std::make_unique<LrSchedule>(options, base_lr, epochs, steps_per_epoch);
}

}  // namespace tandem
