#include "tandem/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

namespace {

constexpr double kPi = 3.14159265358979323846;

void check_setting(
    const std::string& name, double value, bool holds, const std::string& expected) {
  if (!holds || !std::isfinite(value)) {
    throw ConfigError(fmt::format(
        "[schedule] {} is {}, expected {}; change {}", name, value, expected, name));
  }
}

void check_count(const std::string& name, int64_t value, int64_t least) {
  if (value < least) {
    throw ConfigError(fmt::format(
        "[schedule] {} is {}, expected at least {}; change {}", name, value, least,
        name));
  }
}

// From `start` to `end` along half a cosine as `part` goes from 0 to 1.
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
      : gamma_(options.gamma), step_size_(options.step_size), base_lr_(base_lr) {
    check_setting("gamma", gamma_, gamma_ >= 0, "at least 0");
    check_count("step_size", step_size_, 1);
  }

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
      : base_lr_(base_lr), min_lr_(options.min_lr), num_steps_(num_steps) {
    check_setting("min_lr", min_lr_, min_lr_ >= 0, "at least 0");
  }

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

class OneCycle final : public LrSchedule {
 public:
  OneCycle(const LrScheduleOptions& options, double max_lr, int64_t num_steps)
      : initial_lr_(max_lr / options.div_factor),
        max_lr_(max_lr),
        min_lr_(initial_lr_ / options.final_div_factor),
        top_(options.pct_start * static_cast<double>(num_steps) - 1),
        last_(static_cast<double>(num_steps - 1)) {
    check_setting(
        "pct_start", options.pct_start,
        options.pct_start >= 0 && options.pct_start <= 1, "0 to 1");
    check_setting(
        "div_factor", options.div_factor, options.div_factor > 0, "more than 0");
    check_setting(
        "final_div_factor", options.final_div_factor, options.final_div_factor > 0,
        "more than 0");
  }

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
  // Steps; `top_` need not be whole, and is below 0 when the first step is
  // already on the way down.
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

std::unique_ptr<LrSchedule> make_constant(
    const LrScheduleOptions& /*options*/, double base_lr, int64_t, int64_t) {
  return std::make_unique<Constant>(base_lr);
}

std::unique_ptr<LrSchedule> make_step(
    const LrScheduleOptions& options, double base_lr, int64_t, int64_t) {
  return std::make_unique<Step>(options, base_lr);
}

std::unique_ptr<LrSchedule> make_cosine(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch) {
  return std::make_unique<Cosine>(options, base_lr, epochs * steps_per_epoch);
}

std::unique_ptr<LrSchedule> make_one_cycle(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch) {
  return std::make_unique<OneCycle>(options, base_lr, epochs * steps_per_epoch);
}

}  // namespace

const std::vector<LrScheduleEntry>& lr_schedule_table() {
  static const std::vector<LrScheduleEntry> table = {
      {"constant", "always lr", &make_constant},
      {"step", "times gamma every step_size epochs", &make_step},
      {"cosine", "half a cosine from lr to min_lr", &make_cosine},
      {"one_cycle", "up from lr / div_factor to lr, then down to almost 0",
       &make_one_cycle},
  };
  return table;
}

std::unique_ptr<LrSchedule> make_lr_schedule(
    const LrScheduleOptions& options, double base_lr, int64_t epochs,
    int64_t steps_per_epoch) {
  check_setting("lr", base_lr, base_lr >= 0, "at least 0");
  check_count("warmup_steps", options.warmup_steps, 0);
  check_count("epochs", epochs, 0);
  check_count("steps_per_epoch", steps_per_epoch, 0);
  std::vector<std::string> names;
  for (const auto& entry : lr_schedule_table()) {
    if (options.name == entry.name) {
      auto schedule = entry.make(options, base_lr, epochs, steps_per_epoch);
      if (options.warmup_steps == 0) {
        return schedule;
      }
      return std::make_unique<WarmUp>(std::move(schedule), options.warmup_steps);
    }
    names.emplace_back(entry.name);
  }
  throw ConfigError(
      "[schedule] there is no schedule '" + options.name + "'; change it to one of " +
      join(names) + did_you_mean(options.name, names));
}

}  // namespace tandem
