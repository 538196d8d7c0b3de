// Training continues while a checkpoint is written: runs whose disk is held in the
// middle of a save.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <string>
#include <thread>

#include "tandem/base/signals.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/core/expect.h"
#include "tests/faults/faulty_run.h"

namespace tandem::background_saving_test {

using testing::HasSubstr;

// 24 steps with a checkpoint after every eighth step. The tenth file operation is held.
class HeldSave : public testing::Test {
 protected:
  HeldSave() {
    config_.training.batch_size = 1;
    config_.output.checkpoint_every = 8;
    config_.output.log_every = 1;
    config_.output.log_line = "off";
    hold_.kind = FaultKind::hold;
    hold_.operation = 10;
    hold_.below = config_.output.out + "/checkpoints";
  }

  Scratch scratch_;
  RunConfig config_ = faulty_config(scratch_ / "run");
  FileFault hold_;
};

// Otherwise a save could be complete before the disk is held.
void wait_until_held(const Left& left) {
  for (int i = 0; i < 10'000 && left.steps == 9 && !is_holding(); ++i) {
    usleep(1000);
  }
}

TEST_F(HeldSave, DoesNotDelaySteps) {
  const auto ended = train_in_child(config_, hold_, [](Left& left) {
    // Holds the checkpoint of step 8 until seven more steps are done.
    wait_until_held(left);
    if (left.steps == 15) {
      left.noted = is_holding() && left.told_step < 0 ? 1 : 0;
      release();
    }
  });
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_EQ(ended.left.noted, 1) << "step 15 waited for the disk";
  EXPECT_EQ(ended.left.told_step, 24);
  EXPECT_EQ(checkpoints_in(config_.output.out + "/checkpoints").size(), 2u);
}

// The values are those of the saved step, although training continued.
TEST_F(HeldSave, HoldsTheValuesOfItsStep) {
  config_.output.keep_checkpoints = 0;
  const auto undisturbed = [&](const std::string& out) {
    auto config = config_;
    config.output.out = scratch_ / out;
    return train_in_child(config, {}).left;
  };
  const std::string whole = undisturbed("whole").parameters;
  hold_.operation = 2;
  // Killed as soon as the checkpoint of step 8 is complete.
  const auto killed = train_in_child(config_, hold_, [&](Left& left) {
    wait_until_held(left);
    if (left.steps == 13) {
      release();
      const auto directory = config_.output.out + "/checkpoints";
      for (int i = 0; i < 10'000 && newest_checkpoint(directory).empty(); ++i) {
        usleep(1000);
      }
      _exit(kFaultExit);
    }
  });
  ASSERT_EQ(killed.code, kFaultExit) << killed.errors;
  config_.output.resume = "auto";
  const auto resumed = train_in_child(config_, {});
  EXPECT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.errors, HasSubstr("at step 8"));
  EXPECT_EQ(resumed.left.parameters, whole);
}

TEST_F(HeldSave, DelaysTheNextSave) {
  const auto ended = train_in_child(config_, hold_, [](Left& left) {
    wait_until_held(left);
    if (left.steps == 15) {
      // The save of step 16 must wait for that of step 8.
      std::thread([] {
        usleep(200'000);
        release();
      }).detach();
    }
    if (left.steps == 17) {
      left.noted = left.told_step;
    }
  });
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_GE(ended.left.noted, 8);
}

TEST_F(HeldSave, DelaysTheStopOfASignal) {
  const auto ended = train_in_child(config_, hold_, [](Left& left) {
    wait_until_held(left);
    if (left.steps == 10) {
      catch_signals();
      kill(getpid(), SIGTERM);
      std::thread([] {
        usleep(200'000);
        release();
      }).detach();
    }
  });
  EXPECT_EQ(ended.code, kExitStopped);
  expect_parts(
      ended.errors,
      {"stopped by a signal to rank 0 at step ", "continue with --resume auto"});
  const auto all = checkpoints_in(config_.output.out + "/checkpoints");
  EXPECT_EQ(all.size(), 2u) << "that of step 8, and that of the signal";
  EXPECT_EQ(all.rbegin()->first, ended.left.steps);
  EXPECT_EQ(ended.left.told_step, ended.left.steps);
}

// --- --on-save-error ---

class FailedSave : public HeldSave {
 protected:
  FailedSave() {
    hold_.kind = FaultKind::fail;
    hold_.error = ENOSPC;
  }
};

TEST_F(FailedSave, EndsTheRunBeforeTheNextSave) {
  const auto ended = train_in_child(config_, hold_, [](Left&) { usleep(20'000); });
  EXPECT_EQ(ended.code, 1);
  EXPECT_LT(ended.left.steps, 16);
  EXPECT_EQ(lines_with(ended.errors, "error: ").size(), 1u) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("No space left on device"));
}

TEST_F(FailedSave, IsAWarningWithWarn) {
  config_.output.on_save_error = OnSaveError::warn;
  const auto ended = train_in_child(config_, hold_);
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_EQ(lines_with(ended.errors, "warning: ").size(), 1u) << ended.errors;
  expect_parts(
      ended.errors,
      {"warning: the checkpoint of step 8 is missing, and the run continues: ",
       config_.output.out, "No space left on device"});
  EXPECT_EQ(ended.left.told_step, 24);
  EXPECT_EQ(checkpoints_in(config_.output.out + "/checkpoints").begin()->first, 16);
  EXPECT_TRUE(file_exists(config_.output.out + "/summary.json"));
}

TEST_F(FailedSave, EndsTheRunWithWarnIfItIsTheLast) {
  config_.output.on_save_error = OnSaveError::warn;
  FileFault counted = hold_;
  counted.kind = FaultKind::none;
  const auto whole = train_in_child(config_, counted);
  remove_all(config_.output.out);
  // The last two of four saves of equal size: before the evaluation and after it.
  hold_.kind = FaultKind::full;
  hold_.operation = whole.left.operations * 5 / 8;
  const auto ended = train_in_child(config_, hold_);
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.left.steps, 24);
  EXPECT_EQ(ended.left.told_step, 16);
  EXPECT_EQ(lines_with(ended.errors, "warning: ").size(), 1u) << ended.errors;
  EXPECT_EQ(lines_with(ended.errors, "error: ").size(), 1u) << ended.errors;
  config_.output.resume = "auto";
  const auto resumed = train_in_child(config_, {});
  EXPECT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_STREQ(resumed.left.parameters, whole.left.parameters);
}

}  // namespace tandem::background_saving_test
