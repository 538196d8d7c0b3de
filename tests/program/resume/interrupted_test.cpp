// Killed and stopped runs with real processes and signals, compared with a run without
// interruption.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <future>

#include "tandem/base/error.h"
#include "tests/program/ranks/workers.h"
#include "tests/program/resume/resumed_run.h"

namespace tandem::interrupted_test {

using testing::HasSubstr;
using Workers = std::vector<pid_t>;

// A run on three ranks, in directories of a test.
class InterruptedRun : public testing::Test {
 protected:
  Arguments arguments(const std::string& out) const {
    return with(trained(out, batch_size_), kThreeRanks);
  }
  std::string uninterrupted() const {
    const auto out = scratch_ / "whole";
    return run_to_end(arguments(out), out);
  }
  // Starts a run, waits for `ready`, and passes the process ids of its workers to
  // `act`.
  CommandResult disturb(
      const Arguments& more, const std::function<bool()>& ready,
      const std::function<void(const Workers&)>& act) const {
    auto run = std::async(
        std::launch::async, [&] { return tandem_run(with(arguments(out_), more)); });
    EXPECT_TRUE(eventually(ready, 30));
    act(workers_of(out_));
    return run.get();
  }

  std::string batch_size_ = "16";
  const Scratch scratch_;
  const std::string out_ = scratch_ / "run";
};

// --- killed ---

// In the first epoch, at its end, in the middle of the second, one step before the end.
constexpr int64_t kKillSteps[] = {3, 11, 15, kSteps - 2};

TEST_F(InterruptedRun, KilledRunsResumeWithEqualBits) {
  const auto whole = uninterrupted();
  const Arguments saving = {"--checkpoint-every", "1"};
  for (const int64_t step : kKillSteps) {
    SCOPED_TRACE(step);
    remove_all(out_);
    const auto killed = disturb(
        saving, [&] { return file_exists(checkpoint(out_, step)); },
        [](const Workers& workers) {
          for (const pid_t worker : workers) {
            kill(worker, SIGKILL);
          }
        });
    expect_exit(killed, 1, {"SIGKILL"});
    EXPECT_FALSE(file_exists(out_ + "/summary.json"));
    const auto resumed = run_ok(with(arguments(out_), saving, kResume));
    EXPECT_THAT(resumed.errors, HasSubstr("resuming from " + out_));
    EXPECT_EQ(hash_of(out_), whole);
  }
}

// --- signalled ---

// An epoch has 56 steps, so that a signal after the first report does not coincide with
// the checkpoint of an epoch.
class SignalledRun : public InterruptedRun {
 protected:
  SignalledRun() {
    batch_size_ = "3";
  }
  CommandResult disturb_after_report(
      const Arguments& more, const std::function<void(const Workers&)>& act) const {
    return disturb(
        more, [&] { return has_reported(out_); },
        [&](const Workers& workers) {
          ASSERT_EQ(workers.size(), 3u);
          act(workers);
        });
  }
};

struct Stop {
  const char* name;
  Arguments flags;
  void (*act)(const Workers& workers);
};

const Stop kStops[] = {
    {"SIGTERM to a rank", {}, [](const Workers& ranks) { kill(ranks[2], SIGTERM); }},
    {"SIGINT to a rank", {}, [](const Workers& ranks) { kill(ranks[2], SIGINT); }},
    {"SIGHUP to a rank", {}, [](const Workers& ranks) { kill(ranks[2], SIGHUP); }},
    // A service manager signals every process, and the launcher forwards the signal
    // again.
    {"SIGTERM to every process",
     {},
     [](const Workers& ranks) {
       for (const pid_t rank : ranks) {
         kill(rank, SIGTERM);
       }
       kill(parent_of_process(ranks[0]), SIGTERM);
     }},
    {"SIGTERM to the launcher",
     {},
     [](const Workers& ranks) { kill(parent_of_process(ranks[0]), SIGTERM); }},
    {"SIGUSR1 to the launcher", {"--on-sigusr1", "stop"}, [](const Workers& ranks) {
       kill(parent_of_process(ranks[0]), SIGUSR1);
     }}};

TEST_F(SignalledRun, StoppedRunsSaveOnceAndResumeWithEqualBits) {
  const auto whole = uninterrupted();
  for (const auto& [name, flags, act] : kStops) {
    SCOPED_TRACE(name);
    remove_all(out_);
    const auto stopped = disturb_after_report(flags, act);
    expect_exit(
        stopped, kExitStopped, {"stopped by a signal to rank", "--resume auto"});
    EXPECT_TRUE(workers_of(out_).empty());
    EXPECT_EQ(list_directory(out_ + "/checkpoints").size(), 1u);
    EXPECT_EQ(run_to_end(with(arguments(out_), kResume), out_), whole);
  }
}

TEST_F(SignalledRun, SigusrOneToOneRankSavesAndContinues) {
  const auto saved = disturb_after_report(
      kKeepAll, [](const Workers& ranks) { kill(ranks[2], SIGUSR1); });
  EXPECT_TRUE(saved.status.ok()) << saved.errors;
  // One checkpoint besides those of the three epochs.
  EXPECT_EQ(list_directory(out_ + "/checkpoints").size(), 4u);
  EXPECT_EQ(hash_of(out_), uninterrupted());
}

}  // namespace tandem::interrupted_test
