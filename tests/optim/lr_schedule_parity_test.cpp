// Learning rate schedules against torch.optim.lr_scheduler of Python.

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tandem/optim/lr_schedule.h"
#include "tests/parity/python.h"

namespace tandem::lr_schedule_parity_test {

constexpr int64_t kEpochs = 6;
constexpr int64_t kStepsPerEpoch = 5;

LrScheduleOptions named(const std::string& name) {
  LrScheduleOptions options;
  options.kind = *find_choice<ScheduleKind>(name);
  return options;
}

// In the order of kPython.
std::vector<LrScheduleOptions> cases() {
  std::vector<LrScheduleOptions> all;
  const auto add = [&](const std::string& name) -> LrScheduleOptions& {
    all.push_back(named(name));
    return all.back();
  };
  auto& over_the_run = add("linear");
  over_the_run.start_factor = 0.1;
  over_the_run.end_factor = 0.8;
  add("linear").warmup_steps = 7;
  add("polynomial").power = 2.5;
  add("polynomial");
  add("exponential").gamma = 0.3;
  auto& steps = add("multistep");
  steps.gamma = 0.3;
  steps.milestones = "1,2,5";
  auto& equal = add("cosine_restarts");
  equal.restart_epochs = 2;
  equal.min_lr = 0.02;
  auto& rising = add("cosine_restarts");
  rising.restart_epochs = 1;
  rising.restart_factor = 2;
  auto& linear = add("warmup_stable_decay");
  linear.warmup_steps = 4;
  linear.min_lr = 0.02;
  auto& sqrt = add("warmup_stable_decay");
  sqrt.decay_share = 0.35;
  sqrt.decay_shape = DecayShape::one_minus_sqrt;
  return all;
}

// Prints the learning rate of each step. PyTorch has closed forms of its schedules
// without the rounding errors of repeated multiplication. warmup_stable_decay is a
// LambdaLR with the formulas of the papers.
constexpr const char* kPython = R"(
import math
import warnings
import torch
warnings.filterwarnings("ignore")
from torch.optim.lr_scheduler import *
epochs, per_epoch, lr = 6, 5, 0.5
run = epochs * per_epoch

def closed(make):
    schedule = make(torch.optim.SGD([torch.zeros(1)], lr=lr))
    def value(step):
        schedule.last_epoch = step
        return schedule._get_closed_form_lr()[0]
    return value

def by_epoch(make):
    value = closed(make)
    return lambda step: value(step // per_epoch)

def restarts(*args, **options):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    schedule = CosineAnnealingWarmRestarts(optimizer, *args, **options)
    def value(step):
        schedule.step(step / per_epoch)
        return optimizer.param_groups[0]["lr"]
    return value

def stable_decay(warmup, share, shape, low):
    start = run - share * run
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        part = max(0, step - start) / (run - start)
        return (low + (lr - low) * shape(part)) / lr
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    schedule = LambdaLR(optimizer, factor)
    def value(step):
        schedule.step(step)
        return optimizer.param_groups[0]["lr"]
    return value

cases = [
    closed(lambda o: LinearLR(o, 0.1, 0.8, total_iters=run)),
    closed(lambda o: LinearLR(o, total_iters=7)),
    closed(lambda o: PolynomialLR(o, total_iters=run, power=2.5)),
    closed(lambda o: PolynomialLR(o, total_iters=run)),
    by_epoch(lambda o: ExponentialLR(o, 0.3)),
    by_epoch(lambda o: MultiStepLR(o, [1, 2, 5], gamma=0.3)),
    restarts(2, eta_min=0.02),
    restarts(1, T_mult=2),
    stable_decay(4, 0.2, lambda part: 1 - part, 0.02),
    stable_decay(0, 0.35, lambda part: 1 - math.sqrt(part), 0),
]
for value in cases:
    print(*(value(step).hex() for step in range(run)))
)";

TEST(LrSchedule, EqualsPython) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto python = run_python({"-c", kPython});
  ASSERT_TRUE(python.status.ok()) << python.errors;
  std::istringstream words(python.output);
  for (const auto& options : cases()) {
    SCOPED_TRACE(name_of(options.kind));
    const auto schedule = make_lr_schedule(options, 0.5, kEpochs, kStepsPerEpoch);
    for (int64_t step = 0; step < kEpochs * kStepsPerEpoch; ++step) {
      std::string word;
      ASSERT_TRUE(words >> word);
      EXPECT_NEAR(
          schedule->lr(step / kStepsPerEpoch, step), std::strtod(word.c_str(), nullptr),
          1e-15)
          << "step " << step;
    }
  }
}

}  // namespace tandem::lr_schedule_parity_test
