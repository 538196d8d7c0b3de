#include "tandem/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/config/fields.h"

namespace tandem {

namespace {

constexpr double kPi = 3.14159265358979323846;

// Interpolates from `start` to `end` along half a cosine while `part` goes from 0 to 1.
double anneal(double start, double end, double part) {
  return end + (start - end) * (1 + std::cos(kPi * part)) / 2;
}

class Constant final : public LrSchedule {
 public:
  explicit Constant(double base_lr) : base_lr_(base_lr) {}

  double lr(int64_t /*epoch*/, int64_t /*step*/) const override {
    return base_lr_;
  }

 private:
  double base_lr_;
};

class Step final : public LrSchedule {
 public:
  Step(const LrScheduleOptions& options, double base_lr)
      : gamma_(options.gamma), step_size_(options.step_size), base_lr_(base_lr) {}

  double lr(int64_t epoch, int64_t /*step*/) const override {
    const int64_t num_decays = epoch / step_size_;
    return base_lr_ * std::pow(gamma_, static_cast<double>(num_decays));
  }

 private:
  double gamma_;
  int64_t step_size_;
  double base_lr_;
};

class Cosine final : public LrSchedule {
 public:
  Cosine(const LrScheduleOptions& options, double base_lr, int64_t num_steps)
      : base_lr_(base_lr), min_lr_(options.min_lr), num_steps_(num_steps) {}

  double lr(int64_t /*epoch*/, int64_t step) const override {
    if (step >= num_steps_) {
      return min_lr_;
    }
    return anneal(
        base_lr_, min_lr_, static_cast<double>(step) / static_cast<double>(num_steps_));
  }

 private:
  double base_lr_;
  double min_lr_;
  int64_t num_steps_;
};

// Source: LinearLR, CosineAnnealingLR and SequentialLR in torch/optim/lr_scheduler.py.
class WarmupCosine final : public LrSchedule {
 public:
  WarmupCosine(const LrScheduleOptions& options, double base_lr, int64_t num_steps)
      : base_lr_(base_lr),
        start_factor_(options.start_factor),
        warmup_steps_(options.warmup_steps),
        cosine_(options, base_lr, num_steps - options.warmup_steps) {}

  double lr(int64_t epoch, int64_t step) const override {
    if (step >= warmup_steps_) {
      return cosine_.lr(epoch, step - warmup_steps_);
    }
    const double part = static_cast<double>(step) / static_cast<double>(warmup_steps_);
    return base_lr_ * (start_factor_ + (1 - start_factor_) * part);
  }

 private:
  double base_lr_;
  double start_factor_;
  int64_t warmup_steps_;
  Cosine cosine_;
};

class OneCycle final : public LrSchedule {
 public:
  OneCycle(const LrScheduleOptions& options, double max_lr, int64_t num_steps)
      : initial_lr_(max_lr / options.div_factor),
        max_lr_(max_lr),
        min_lr_(initial_lr_ / options.final_div_factor),
        top_(options.pct_start * static_cast<double>(num_steps) - 1),
        last_(static_cast<double>(num_steps - 1)) {}

  double lr(int64_t /*epoch*/, int64_t step) const override {
    const auto at = static_cast<double>(step);
    if (at < top_) {
      return anneal(initial_lr_, max_lr_, at / top_);
    }
    const double part = last_ > top_ ? (at - top_) / (last_ - top_) : 0;
    return anneal(max_lr_, min_lr_, std::min(part, 1.0));
  }

 private:
  double initial_lr_;
  double max_lr_;
  double min_lr_;
  // Steps at which the rate is highest and at which the run ends. `top_` may be
  // fractional. It is below 0 if the rate decreases from the first step.
  double top_;
  double last_;
};

class WarmUp final : public LrSchedule {
 public:
  WarmUp(std::unique_ptr<LrSchedule> schedule, int64_t num_steps)
      : schedule_(std::move(schedule)), num_steps_(num_steps) {}

  double lr(int64_t epoch, int64_t step) const override {
    const double full = schedule_->lr(epoch, step);
    return step >= num_steps_
               ? full
               : full * static_cast<double>(step + 1) / static_cast<double>(num_steps_);
  }

 private:
  std::unique_ptr<LrSchedule> schedule_;
  int64_t num_steps_;
};

// Makes the schedule without the factor of WarmUp. `num_steps` is the number of steps
// of the run.
std::unique_ptr<LrSchedule> make_unwarmed(
    const LrScheduleOptions& options, double base_lr, int64_t num_steps) {
  switch (options.kind) {
    case ScheduleKind::step:
      return std::make_unique<Step>(options, base_lr);
    case ScheduleKind::cosine:
      return std::make_unique<Cosine>(options, base_lr, num_steps);
    case ScheduleKind::warmup_cosine:
      return std::make_unique<WarmupCosine>(options, base_lr, num_steps);
    case ScheduleKind::one_cycle:
      return std::make_unique<OneCycle>(options, base_lr, num_steps);
    default:
      return std::make_unique<Constant>(base_lr);
  }
}

void check_count(const char* name, int64_t value) {
  if (value < 0) {
    throw ConfigError(fmt::format(
        "[schedule] {} is {}, expected at least 0; change {}", name, value, name));
  }
}

void check_schedule(const LrScheduleOptions& options, double base_lr) {
  check_options(options);
  // The optimizer's check accepts -1, because -1 is its value for an unset lr.
  if (!std::isfinite(base_lr) || base_lr < 0) {
    throw ConfigError(fmt::format(
        "[schedule] lr is {}, expected a number from 0; change lr", base_lr));
  }
}

}  // namespace

std::unique_ptr<LrSchedule> make_lr_schedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch) {
  check_schedule(options, base_lr);
  check_count("epochs", epochs);
  check_count("steps_per_epoch", steps_per_epoch);
  auto schedule = make_unwarmed(options, base_lr, epochs * steps_per_epoch);
  if (options.warmup_steps == 0 || options.kind == ScheduleKind::warmup_cosine) {
    return schedule;
  }
  return std::make_unique<WarmUp>(std::move(schedule), options.warmup_steps);
}

}  // namespace tandem
