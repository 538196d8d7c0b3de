#include "tandem/optim/lr_schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::lr_schedule_test {

using testing::HasSubstr;

// The expected lists are from torch.optim.lr_scheduler of PyTorch 1.13: the values of
// param_groups[0]["lr"] before each schedule.step(), for SGD with lr 0.5 and the
// schedule in the comment.

LrScheduleOptions named(const std::string& name) {
  LrScheduleOptions options;
  options.kind = *find_choice<ScheduleKind>(name);
  return options;
}

void expect_lrs_by_step(
    const LrSchedule& schedule, const std::vector<double>& expected) {
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(schedule.lr(0, static_cast<int64_t>(step)), expected[step], 1e-15)
        << "step " << step;
  }
}

std::string refusal(
    const LrScheduleOptions& options, double base_lr = 0.5, int64_t epochs = 1) {
  return error_of<ConfigError>(
      [&] { return make_lr_schedule(options, base_lr, epochs, 10); });
}

TEST(ConstantSchedule, IsTheBaseLr) {
  const auto schedule = make_lr_schedule(named("constant"), 0.5, 2, 5);
  EXPECT_EQ(schedule->lr(0, 0), 0.5);
  EXPECT_EQ(schedule->lr(1, 9), 0.5);
}

TEST(StepSchedule, AgreesWithPyTorchByEpoch) {
  auto options = named("step");
  options.step_size = 2;
  options.gamma = 0.3;
  const auto schedule = make_lr_schedule(options, 0.5, 6, 5);
  // StepLR(optimizer, 2, gamma=0.3)
  const std::vector<double> expected = {0.5, 0.5, 0.15, 0.15, 0.045, 0.045};
  for (size_t epoch = 0; epoch < expected.size(); ++epoch) {
    for (const int64_t step : {0, 4}) {
      const auto at = static_cast<int64_t>(epoch);
      EXPECT_NEAR(schedule->lr(at, 5 * at + step), expected[epoch], 1e-15);
    }
  }
}

TEST(CosineSchedule, AgreesWithPyTorchByStep) {
  auto options = named("cosine");
  options.min_lr = 0.02;
  // CosineAnnealingLR(optimizer, 10, eta_min=0.02)
  expect_lrs_by_step(
      *make_lr_schedule(options, 0.5, 2, 5),
      {0.5, 0.48825356391083685, 0.45416407864998737, 0.4010684605501936,
       0.3341640786499874, 0.26, 0.18583592135001265, 0.11893153944980649,
       0.06583592135001265, 0.03174643608916315, 0.02});
}

TEST(OneCycleSchedule, AgreesWithPyTorchByStep) {
  // OneCycleLR(optimizer, 0.5, epochs=2, steps_per_epoch=5)
  expect_lrs_by_step(
      *make_lr_schedule(named("one_cycle"), 0.5, 2, 5),
      {0.020000000000000018, 0.26, 0.5, 0.47524231600673683, 0.40587282697488153,
       0.30563101096814466, 0.19437098903185537, 0.09412917302511849,
       0.024759683993263143, 2e-06});
  auto options = named("one_cycle");
  options.pct_start = 0.45;
  options.div_factor = 10;
  options.final_div_factor = 100;
  // OneCycleLR(optimizer, 0.5, total_steps=10, pct_start=0.45, div_factor=10,
  //            final_div_factor=100): the maximum is between two steps.
  expect_lrs_by_step(
      *make_lr_schedule(options, 0.5, 1, 10),
      {0.04999999999999999, 0.13471479458178492, 0.3250672101401707,
       0.47771799527804426, 0.48988337016022077, 0.413801468302835, 0.285793130858753,
       0.1465001005027789, 0.04014693017541247, 0.0005});
}

TEST(OneCycleSchedule, AgreesWithPyTorchForExtremePctStart) {
  auto options = named("one_cycle");
  options.pct_start = 0;
  // OneCycleLR(optimizer, 0.5, total_steps=4, pct_start=0.0)
  expect_lrs_by_step(
      *make_lr_schedule(options, 0.5, 1, 4),
      {0.42677698818985565, 0.250001, 0.07322501181014432, 2e-06});
  options.pct_start = 1;
  // OneCycleLR(optimizer, 0.5, total_steps=4, pct_start=1.0)
  expect_lrs_by_step(
      *make_lr_schedule(options, 0.5, 1, 4),
      {0.020000000000000018, 0.14, 0.37999999999999995, 0.5});
}

TEST(LrSchedule, IsConstantAfterTheRun) {
  auto options = named("cosine");
  options.min_lr = 0.125;
  EXPECT_EQ(make_lr_schedule(options, 0.5, 2, 5)->lr(2, 17), 0.125);
  EXPECT_EQ(make_lr_schedule(options, 0.5, 0, 5)->lr(0, 0), 0.125);
  options = named("one_cycle");
  EXPECT_DOUBLE_EQ(make_lr_schedule(options, 0.5, 2, 5)->lr(2, 17), 0.5 / 25 / 1e4);
  options.pct_start = 1;
  EXPECT_EQ(make_lr_schedule(options, 0.5, 2, 5)->lr(2, 17), 0.5);
  options = named("linear");
  options.end_factor = 0.25;
  EXPECT_EQ(make_lr_schedule(options, 0.5, 2, 5)->lr(2, 17), 0.125);
  EXPECT_EQ(make_lr_schedule(named("polynomial"), 0.5, 2, 5)->lr(2, 17), 0);
  options = named("warmup_stable_decay");
  options.min_lr = 0.125;
  EXPECT_EQ(make_lr_schedule(options, 0.5, 2, 5)->lr(2, 17), 0.125);
}

// A dry run can have no steps.
TEST(LrSchedule, OfARunWithoutStepsIsANumber) {
  for (const auto& entry : Choices<ScheduleKind>::rows) {
    auto options = named(entry.name);
    options.milestones = options.kind == ScheduleKind::multistep ? "1" : "";
    const double lr = make_lr_schedule(options, 0.5, 0, 0)->lr(0, 0);
    EXPECT_TRUE(lr >= 0 && lr <= 0.5) << entry.name << ": " << lr;
  }
}

std::vector<double> lrs_after(LrSchedule& schedule, const std::vector<double>& losses) {
  std::vector<double> lrs;
  for (const double loss : losses) {
    schedule.note_evaluation(loss);
    lrs.push_back(schedule.lr(0, 0));
  }
  return lrs;
}

TEST(PlateauSchedule, AgreesWithPyTorchByEvaluation) {
  const std::vector<double> losses = {1.0, 0.995, 0.991, 0.9, 0.9, 0.9, 0.9, 0.9,
                                      0.9, 0.9,   0.5,   0.6, 0.6, 0.6, 0.6, 0.6};
  auto options = named("plateau");
  options.gamma = 0.5;
  options.plateau_patience = 1;
  options.plateau_threshold = 0.01;
  options.plateau_cooldown = 1;
  options.min_lr = 0.02;
  // ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.01, cooldown=1,
  //                   min_lr=0.02)
  EXPECT_EQ(
      lrs_after(*make_lr_schedule(options, 0.5, 9, 5), losses),
      (std::vector<double>{
          0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625, 0.0625,
          0.0625, 0.03125, 0.03125, 0.03125, 0.02}));
  options = named("plateau");
  options.gamma = 0.1;
  options.plateau_patience = 0;
  // ReduceLROnPlateau(optimizer, factor=0.1, patience=0), which ignores changes of the
  // learning rate below 1e-8.
  const auto lrs = lrs_after(*make_lr_schedule(options, 0.5, 9, 5), losses);
  EXPECT_DOUBLE_EQ(lrs[11], 5.0000000000000024e-08);
  EXPECT_DOUBLE_EQ(lrs[12], 5.0000000000000026e-09);
  EXPECT_EQ(lrs[15], lrs[12]);
}

TEST(PlateauSchedule, ContinuesFromItsState) {
  auto options = named("plateau");
  options.plateau_patience = 1;
  const auto whole = make_lr_schedule(options, 0.5, 9, 5);
  lrs_after(*whole, {1, 1});
  const auto resumed = make_lr_schedule(options, 0.5, 9, 5);
  resumed->continue_from(whole->plateau());
  EXPECT_EQ(lrs_after(*resumed, {1, 1, 1}), lrs_after(*whole, {1, 1, 1}));
}

TEST(WarmupCosineSchedule, AgreesWithPyTorchByStep) {
  auto options = named("warmup_cosine");
  options.warmup_steps = 4;
  options.start_factor = 0.1;
  options.min_lr = 0.02;
  // SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=4),
  //              CosineAnnealingLR(optimizer, 6, eta_min=0.02)], milestones=[4])
  expect_lrs_by_step(
      *make_lr_schedule(options, 0.5, 2, 5),
      {0.05, 0.1625, 0.275, 0.38750000000000007, 0.5, 0.46784609690826534,
       0.38000000000000006, 0.26, 0.14000000000000007, 0.05215390309173472});
  options = named("warmup_cosine");
  options.warmup_steps = 3;
  // SequentialLR(optimizer, [LinearLR(optimizer, total_iters=3),
  //              CosineAnnealingLR(optimizer, 5)], milestones=[3])
  expect_lrs_by_step(
      *make_lr_schedule(options, 0.5, 1, 8),
      {0.16666666666666666, 0.2777777777777778, 0.3888888888888889, 0.5,
       0.45225424859373686, 0.32725424859373686, 0.17274575140626314,
       0.04774575140626316});
}

TEST(WarmupCosineSchedule, WithoutWarmUpIsTheCosine) {
  const auto cosine = make_lr_schedule(named("cosine"), 0.5, 2, 5);
  const auto sequence = make_lr_schedule(named("warmup_cosine"), 0.5, 2, 5);
  for (int64_t step = 0; step < 12; ++step) {
    EXPECT_EQ(sequence->lr(step / 5, step), cosine->lr(step / 5, step));
  }
}

TEST(CosineSchedule, WithWarmUpAgreesWithPyTorchsChainedScheduler) {
  auto options = named("cosine");
  options.warmup_steps = 4;
  // ChainedScheduler([LinearLR(optimizer, 1 / 4, total_iters=3),
  //                   CosineAnnealingLR(optimizer, 10)])
  expect_lrs_by_step(
      *make_lr_schedule(options, 0.5, 2, 5),
      {0.125, 0.2438820645368942, 0.33919068644530265, 0.3969463130731183,
       0.32725424859373686, 0.25, 0.17274575140626316, 0.10305368692688174,
       0.047745751406263165, 0.012235870926211617});
}

TEST(LrSchedule, WarmsUpLinearly) {
  for (const auto& entry : Choices<ScheduleKind>::rows) {
    if (entry.value == ScheduleKind::warmup_cosine ||
        entry.value == ScheduleKind::linear) {
      continue;
    }
    auto options = named(entry.name);
    options.milestones = options.kind == ScheduleKind::multistep ? "1" : "";
    const auto cold = make_lr_schedule(options, 0.5, 2, 5);
    options.warmup_steps = 4;
    const auto warm = make_lr_schedule(options, 0.5, 2, 5);
    for (int64_t step = 0; step < 10; ++step) {
      const double factor = step < 4 ? 0.25 * static_cast<double>(step + 1) : 1;
      EXPECT_DOUBLE_EQ(warm->lr(step / 5, step), factor * cold->lr(step / 5, step))
          << entry.name << ", step " << step;
    }
  }
}

struct Refused {
  const char* schedule;
  std::function<void(LrScheduleOptions&)> change;
  const char* error;
};

TEST(LrSchedule, RejectsOptions) {
  using O = LrScheduleOptions;
  const Refused rows[] = {
      {"step", [](O& o) { o.step_size = 0; },
       "[config] step_size is 0, expected 1 to 1000000000; change --step-size"},
      {"cosine", [](O& o) { o.min_lr = -0.25; }, "min_lr is -0.25, expected 0 to"},
      {"cosine", [](O& o) { o.gamma = 0.5; },
       "gamma is 0.5, which is for schedule step"},
      {"one_cycle", [](O& o) { o.pct_start = 1.5; },
       "pct_start is 1.5, expected 0 to 1"},
      {"warmup_cosine", [](O& o) { o.start_factor = 1.5; },
       "start_factor is 1.5, expected 0 to 1"},
      {"cosine", [](O& o) { o.milestones = "3"; },
       "milestones is 3, which is for schedule multistep, not cosine"},
      {"multistep", [](O&) {},
       "milestones is '', expected numbers of epochs in ascending order, such as "
       "'30,60,80'; change --milestones"},
      {"multistep", [](O& o) { o.milestones = "30,60,60"; },
       "milestones is '30,60,60'"},
      {"multistep", [](O& o) { o.milestones = "0,3"; }, "milestones is '0,3'"},
      {"multistep", [](O& o) { o.milestones = "3,x"; }, "milestones is '3,x'"},
      {"polynomial", [](O& o) { o.power = -1; }, "power is -1.0, expected 0 to"},
      {"linear", [](O& o) { o.end_factor = 1.5; },
       "end_factor is 1.5, expected 0 to 1"},
      {"cosine_restarts", [](O& o) { o.restart_epochs = 0; },
       "restart_epochs is 0, expected 1 to"},
      {"cosine_restarts", [](O& o) { o.restart_factor = 0; },
       "restart_factor is 0, expected 1 to"},
      {"warmup_stable_decay", [](O& o) { o.decay_share = 1.5; },
       "decay_share is 1.5, expected 0 to 1"},
      {"one_cycle", [](O& o) { o.decay_share = 0.5; },
       "decay_share is 0.5, which is for schedule warmup_stable_decay"},
      {"constant", [](O& o) { o.warmup_steps = -3; },
       "warmup_steps is -3, expected 0"}};
  for (const auto& row : rows) {
    auto options = named(row.schedule);
    row.change(options);
    EXPECT_THAT(refusal(options), HasSubstr(row.error));
  }
}

TEST(LrSchedule, RejectsOtherArguments) {
  for (const double lr : {-0.5, -1.0}) {
    EXPECT_EQ(
        refusal(named("constant"), lr),
        fmt::format("[schedule] lr is {}, expected a number from 0; change lr", lr));
  }
  EXPECT_EQ(
      refusal(named("constant"), 0.5, -1),
      "[schedule] epochs is -1, expected at least 0; change epochs");
}

}  // namespace tandem::lr_schedule_test
