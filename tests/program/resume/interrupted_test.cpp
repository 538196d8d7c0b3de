// Killed and stopped runs with real processes and signals, compared with a run without
// interruption.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tests/program/ranks/workers.h"
#include "tests/program/resume/resumed_run.h"

namespace tandem::interrupted_test {

using testing::HasSubstr;

// Results of a run without interruption.
std::string uninterrupted(const std::string& batch_size = "16") {
  const Scratch scratch;
  const auto out = scratch / "whole";
  return run_to_end(trained(out, batch_size) + kThreeRanks, out);
}

// Starts a run, waits for `ready`, and passes the process ids of its workers to `act`.
CommandResult disturb(
    const Arguments& arguments, const std::string& out,
    const std::function<bool()>& ready,
    const std::function<void(const std::vector<pid_t>&)>& act) {
  CommandResult result;
  std::thread run([&] { result = tandem_run(arguments); });
  for (int i = 0; i < 3000 && !ready(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(ready());
  act(workers_of(out));
  run.join();
  return result;
}

// For signals: 56 steps per epoch, so that a signal after the first report does not
// coincide with the checkpoint of an epoch.
const char* const kSignalBatch = "3";

Arguments signalled(const std::string& out) {
  return trained(out, kSignalBatch) + kThreeRanks;
}

CommandResult disturb_after_report(
    const Arguments& arguments, const std::string& out,
    const std::function<void(const std::vector<pid_t>&)>& act) {
  return disturb(
      arguments, out, [&] { return has_reported(out); }, act);
}

// A stopped run of signalled().
void expect_saved_once_and_resumes(const std::string& out) {
  EXPECT_TRUE(workers_of(out).empty());
  EXPECT_EQ(list_directory(out + "/checkpoints").size(), 1u);
  EXPECT_EQ(run_to_end(signalled(out) + kResume, out), uninterrupted(kSignalBatch));
}

// --- killed ---

class KilledAt : public testing::TestWithParam<int64_t> {};

TEST_P(KilledAt, ResumesWithEqualBits) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto arguments =
      trained(out) + kThreeRanks + Arguments{"--checkpoint-every", "1"};
  const auto killed = disturb(
      arguments, out, [&] { return file_exists(checkpoint(out, GetParam())); },
      [](const std::vector<pid_t>& workers) {
        for (const pid_t worker : workers) {
          kill(worker, SIGKILL);
        }
      });
  expect_exit(killed, 1, {"SIGKILL"});
  EXPECT_FALSE(file_exists(out + "/summary.json"));
  const auto resumed = run_ok(arguments + kResume);
  EXPECT_THAT(resumed.errors, HasSubstr("resuming from " + out));
  EXPECT_EQ(hash_of(out), uninterrupted());
}

// In the first epoch, at its end, in the middle of the second, one step before the end.
INSTANTIATE_TEST_SUITE_P(Resume, KilledAt, testing::Values(3, 11, 15, kSteps - 2));

// --- stopped ---

// A service manager signals every process, and the launcher forwards the signal again.
TEST(Resume, ASignalToEveryProcessSavesToo) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto stopped =
      disturb_after_report(signalled(out), out, [](const std::vector<pid_t>& workers) {
        ASSERT_EQ(workers.size(), 3u);
        for (const pid_t worker : workers) {
          kill(worker, SIGTERM);
        }
        kill(parent_of_process(workers[0]), SIGTERM);
      });
  expect_exit(stopped, kExitStopped, {"--resume auto"});
  expect_saved_once_and_resumes(out);
}

class StoppedBy : public testing::TestWithParam<int> {};

TEST_P(StoppedBy, ASignalToOneRankStopsAllAtTheSameStep) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto stopped =
      disturb_after_report(signalled(out), out, [](const std::vector<pid_t>& workers) {
        ASSERT_EQ(workers.size(), 3u);
        kill(workers.back(), GetParam());
      });
  expect_exit(stopped, kExitStopped, {"stopped by a signal to rank", "--resume auto"});
  expect_saved_once_and_resumes(out);
}

INSTANTIATE_TEST_SUITE_P(Resume, StoppedBy, testing::Values(SIGTERM, SIGINT, SIGHUP));

TEST(Resume, ASignalToTheLauncherStopsAllRanks) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto stopped =
      disturb_after_report(signalled(out), out, [&](const std::vector<pid_t>& workers) {
        ASSERT_FALSE(workers.empty());
        kill(parent_of_process(workers.front()), SIGTERM);
      });
  EXPECT_EQ(stopped.status.code, kExitStopped);
  expect_saved_once_and_resumes(out);
}

TEST(Resume, SigusrOneToOneRankSavesAndContinues) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto saved = disturb_after_report(
      signalled(out) + Arguments{"--keep-checkpoints", "0"}, out,
      [](const std::vector<pid_t>& workers) {
        ASSERT_EQ(workers.size(), 3u);
        kill(workers.back(), SIGUSR1);
      });
  EXPECT_TRUE(saved.status.ok()) << saved.errors;
  // One checkpoint besides those of the three epochs.
  EXPECT_EQ(list_directory(out + "/checkpoints").size(), 4u);
  EXPECT_EQ(hash_of(out), uninterrupted(kSignalBatch));
}

TEST(Resume, SigusrOneStopsARunWithOnSigusr1Stop) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto stopped = disturb_after_report(
      signalled(out) + Arguments{"--on-sigusr1", "stop"}, out,
      [](const std::vector<pid_t>& workers) {
        ASSERT_EQ(workers.size(), 3u);
        kill(parent_of_process(workers.front()), SIGUSR1);
      });
  expect_exit(stopped, kExitStopped, {"stopped by a signal to rank"});
  expect_saved_once_and_resumes(out);
}

}  // namespace tandem::interrupted_test
