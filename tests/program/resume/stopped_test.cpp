// Runs that a signal stops during an evaluation, when a terminal closes, or between
// averages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/data/idx.h"
#include "tests/base/test_tools.h"
#include "tests/program/ranks/workers.h"
#include "tests/program/resume/resumed_run.h"

namespace tandem::stopped_test {

bool is_saved(const std::string& out) {
  return !newest_checkpoint(out + "/checkpoints").empty();
}

// Output and exit of a program; "still runs" if it does not end.
struct Stopped {
  std::string ending = "still runs";
  std::string errors;
};

// Starts a run with its output in a file, and signals its first process when `ready`
// returns true.
Stopped stop_when(
    const std::function<bool()>& ready, const Arguments& arguments,
    const std::string& out, int number) {
  Arguments command = {"sh", "-c", "exec \"$@\" > \"$0.log\" 2>&1", out, program()};
  Process run({with(command, arguments), {}, false});
  Stopped stopped;
  EXPECT_TRUE(eventually([&] { return ready() || run.poll().has_value(); }));
  kill(run.pid(), number);
  eventually([&] { return run.poll().has_value(); });
  if (const auto status = run.poll()) {
    stopped.ending = status->describe();
  }
  stopped.errors = read_file(out + ".log");
  return stopped;
}

// --- in an evaluation ---

void write_images(const std::string& folder, const std::string& name, size_t count) {
  IdxArray images{{static_cast<int64_t>(count), 28, 28}, {}};
  IdxArray labels{{static_cast<int64_t>(count)}, {}};
  for (size_t i = 0; i < count; ++i) {
    images.values.insert(images.values.end(), 28 * 28, static_cast<uint8_t>(i * 7));
    labels.values.push_back(static_cast<uint8_t>(i % 10));
  }
  write_idx(folder + "/" + name + "-images-idx3-ubyte", images);
  write_idx(folder + "/" + name + "-labels-idx1-ubyte", labels);
}

constexpr size_t kTestImages = 12'000;
constexpr const char* kAtOnce = "64";

class StoppedInAnEvaluation : public testing::TestWithParam<std::pair<int, Way>> {
 protected:
  StoppedInAnEvaluation() {
    std::filesystem::create_directory(scratch_ / "data");
    write_images(scratch_ / "data", "train", 64);
    write_images(scratch_ / "data", "t10k", kTestImages);
  }
  // Evaluations of one sample each in the eager executor take seconds.
  Arguments evaluating(const std::string& out, const std::string& batch_size) const {
    return with(
        {"train", "--data", scratch_ / "data", "--model", "net5x5", "--epochs", "2",
         "--batch-size", "8", "--executor", "eager", "--out", out, "--eval-batch-size",
         batch_size},
        GetParam().second.flags);
  }

  const Scratch scratch_;
};

// Returns the kind and step of each line of a run's metrics.
std::vector<std::pair<std::string, int64_t>> kinds_in(const std::string& out) {
  std::vector<std::pair<std::string, int64_t>> kinds;
  for (const auto& line : split(read_file(out + "/metrics.jsonl"), '\n')) {
    const auto fields = nlohmann::json::parse(line);
    if (fields["kind"] != "resume") {
      kinds.emplace_back(fields["kind"], fields["step"]);
    }
  }
  return kinds;
}

TEST_P(StoppedInAnEvaluation, KeepsTheStepsOfTheEpoch) {
  const auto out = scratch_ / "run";
  const auto stopped = stop_when(
      [&] { return is_saved(out); }, evaluating(out, "1"), out, GetParam().first);
  EXPECT_EQ(stopped.ending, "exited with code 75") << stopped.errors;
  EXPECT_FALSE(file_exists(out + "/summary.json"));
  EXPECT_EQ(list_directory(out + "/checkpoints").size(), 1u);
  const auto whole = scratch_ / "whole";
  EXPECT_EQ(
      run_to_end(with(evaluating(out, kAtOnce), kResume), out),
      run_to_end(evaluating(whole, kAtOnce), whole));
  // The resumed run begins with the evaluation of the first epoch.
  EXPECT_EQ(kinds_in(out), kinds_in(whole));
}

INSTANTIATE_TEST_SUITE_P(
    Resume, StoppedInAnEvaluation,
    testing::Values(
        std::pair(SIGINT, Way{"OneRank", {}}),
        std::pair(SIGHUP, Way{"Shm", {"--nproc", "2"}}),
        std::pair(SIGTERM, Way{"Threads", {"--nproc", "2", "--rank-type", "thread"}}),
        std::pair(
            SIGINT, Way{"Averaging", {"--nproc", "3", "--strategy", "averaging"}}),
        std::pair(
            SIGTERM, Way{"Pipeline", {"--nproc", "2", "--strategy", "pipeline"}})),
    [](const auto& test) { return std::string(test.param.second.name); });

// --- before the first step ---

// Returns whether a process has the effect of signals under control.
bool holds_sigterm(pid_t pid) {
  const auto status = read_file("/proc/" + std::to_string(pid) + "/status");
  for (const auto& line : lines_with(status, "SigBlk:")) {
    return std::stoull(line.substr(line.find(':') + 1), nullptr, 16) >> (SIGTERM - 1) &
           1;
  }
  return false;
}

class StoppedEarly : public testing::TestWithParam<Way> {};

TEST_P(StoppedEarly, EndsWithTheCodeOfAStop) {
  const Scratch scratch;
  for (const int milliseconds : {0, 30, 200}) {
    SCOPED_TRACE(milliseconds);
    const auto out = scratch / "run" + std::to_string(milliseconds);
    const auto arguments = with(
        {"train", "--model", "net5x5", "--limit", "640", "--epochs", "50", "--resume",
         "auto", "--out", out},
        GetParam().flags);
    Process run({with({program()}, arguments), {}, true});
    EXPECT_TRUE(eventually([&] { return holds_sigterm(run.pid()); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    kill(run.pid(), SIGTERM);
    EXPECT_EQ(run.wait().describe(), "exited with code 75");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Resume, StoppedEarly,
    testing::Values(Way{"OneRank", {}}, Way{"Shm", {"--nproc", "2"}}),
    testing::PrintToStringParamName());

TEST(SavedEarly, Sigusr1DoesNotKillARankThatLoads) {
  const Scratch scratch;
  const auto out = scratch / "run";
  Process run(
      {{program(), "train", "--model", "net5x5", "--limit", "64", "--epochs", "1",
        "--nproc", "2", "--out", out},
       {},
       true});
  EXPECT_TRUE(eventually([&] { return !workers_of(out).empty(); }));
  for (const pid_t worker : workers_of(out)) {
    kill(worker, SIGUSR1);
  }
  EXPECT_EQ(run.wait().describe(), "exited with code 0");
}

// --- in an epoch ---

int saved_step(const std::string& out) {
  const auto newest = newest_checkpoint(out + "/checkpoints");
  return newest.empty() ? -1 : std::stoi(newest.substr(newest.rfind('-') + 1));
}

class StoppedInAnEpoch : public testing::TestWithParam<std::pair<int, Way>> {};

Arguments training(const std::string& out) {
  return {"train", "--model",     "convnet", "--epochs", "2", "--batch-size",
          "4",     "--log-every", "1",       "--out",    out};
}

TEST_P(StoppedInAnEpoch, SavesAndPrintsHowToResume) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto stopped = stop_when(
      [&] { return has_reported(out); }, with(training(out), GetParam().second.flags),
      out, GetParam().first);
  EXPECT_EQ(stopped.ending, "exited with code 75") << stopped.errors;
  const auto saved = newest_checkpoint(out + "/checkpoints");
  expect_parts(
      stopped.errors, {"stopped by a signal to rank",
                       "; '" + saved + "' is saved; continue with --resume auto"});
  EXPECT_THAT(stopped.errors, testing::Not(testing::HasSubstr("error:")));
  // 60,000 samples, 4 a step and rank, 4 ranks at most: before the epoch's end.
  EXPECT_LT(saved_step(out), 3750);
  EXPECT_GT(saved_step(out), 0);
}

const Way kOneRank = {"OneRank", {}};
const Way kTwoRanks = {"Shm", {"--nproc", "2"}};
const Way kAverages = {
    "Averaging", {"--nproc", "2", "--strategy", "averaging", "--average-every", "3"}};
// Ranks that step alone meet only at the end of an epoch.
const Way kAveragesOfEpochs = {
    "AveragingOfEpochs",
    {"--nproc", "3", "--strategy", "averaging", "--average-every", "epoch"}};
const Way kAverageAtTheEnd = {
    "AveragingAtTheEnd",
    {"--nproc", "4", "--strategy", "averaging", "--average-every", "end"}};
const Way kHogwild = {"Hogwild", {"--nproc", "3", "--strategy", "hogwild"}};
const Way kHogwildThreads = {
    "HogwildThreads",
    {"--nproc", "4", "--strategy", "hogwild", "--rank-type", "thread"}};
const Way kServer = {
    "AsynchronousServer",
    {"--nproc", "3", "--strategy", "parameter_server", "--server-updates",
     "asynchronous"}};
const Way kServerThreads = {
    "AsynchronousServerThreads",
    {"--nproc", "4", "--strategy", "parameter_server", "--server-updates",
     "asynchronous", "--rank-type", "thread"}};

INSTANTIATE_TEST_SUITE_P(
    Resume, StoppedInAnEpoch,
    testing::Values(
        std::pair(SIGHUP, kOneRank), std::pair(SIGHUP, kTwoRanks),
        std::pair(SIGTERM, kAverages), std::pair(SIGHUP, kAverages),
        std::pair(SIGTERM, kAveragesOfEpochs), std::pair(SIGINT, kAverageAtTheEnd),
        std::pair(SIGTERM, kHogwild), std::pair(SIGINT, kHogwild),
        std::pair(SIGHUP, kHogwildThreads), std::pair(SIGTERM, kServer),
        std::pair(SIGHUP, kServer), std::pair(SIGINT, kServerThreads)),
    [](const auto& tested) {
      return std::string(tested.param.second.name) + "By" +
             sigabbrev_np(tested.param.first);
    });

// Ranks have made the same number of steps, with different parameters.
TEST(StoppedAveraging, ResumesWithEqualBits) {
  const Scratch scratch;
  const auto arguments = [&](const std::string& out) {
    return with(training(out), kAveragesOfEpochs.flags, {"--limit", "6000"});
  };
  const auto out = scratch / "run";
  stop_when([&] { return has_reported(out); }, arguments(out), out, SIGTERM);
  EXPECT_LT(saved_step(out), 500);
  EXPECT_GT(saved_step(out), 0);
  const auto whole = scratch / "whole";
  EXPECT_EQ(
      run_to_end(with(arguments(out), kResume), out),
      run_to_end(arguments(whole), whole));
}

}  // namespace tandem::stopped_test
