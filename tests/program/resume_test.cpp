// Runs that are killed, stopped and moved, against one that was not: real processes
// and signals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>
#include <thread>

#include "program.h"
#include "tests/program/ranks/workers.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// Everything that could make a resumed run differ: dropout, Adadelta's state, a
// schedule, accumulation. At three ranks 21 batches an epoch, whose last stands alone:
// 11 steps.
Arguments trained(const std::string& out, const std::string& batch_size = "16") {
  return {"train",    "--model",      "convnet", "--limit",
          "1000",     "--epochs",     "3",       "--batch-size",
          batch_size, "--accumulate", "2",       "--schedule",
          "step",     "--log-every",  "5",       "--eval-batch-size",
          "100",      "--out",        out};
}

const Arguments kThreeRanks = {"--nproc", "3"};
const Arguments kResume = {"--resume", "auto"};
constexpr int64_t kSteps = 3 * 11;

std::string hash_in(const std::string& out) {
  return json_value(out + "/summary.json", "parameters_sha256");
}

std::string run_to_end(const Arguments& arguments, const std::string& out) {
  const auto result = tandem_run(arguments);
  EXPECT_TRUE(result.status.ok()) << result.errors;
  return hash_in(out);
}

// The bits of not stopping, computed once for all tests of a process.
std::string uninterrupted(const std::string& batch_size = "16") {
  const Scratch scratch;
  const auto out = scratch / "whole";
  return run_to_end(trained(out, batch_size) + kThreeRanks, out);
}

std::string checkpoint(const std::string& out, int64_t step) {
  std::string number = std::to_string(step);
  number.insert(0, 8 - number.size(), '0');
  return out + "/checkpoints/step-" + number;
}

// Training has begun.
bool has_reported(const std::string& out) {
  const auto metrics = out + "/metrics.jsonl";
  return file_exists(metrics) && !read_file(metrics).empty();
}

// Starts a run, waits for `ready`, lets `act` have its workers' process ids.
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

// For signals: 56 steps an epoch, so that one sent after the first report does not
// come with an epoch's own checkpoint.
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

// A run of signalled() that has been stopped.
void expect_saved_once_and_resumes(const std::string& out) {
  EXPECT_TRUE(workers_of(out).empty());
  EXPECT_EQ(list_directory(out + "/checkpoints").size(), 1u);
  EXPECT_EQ(run_to_end(signalled(out) + kResume, out), uninterrupted(kSignalBatch));
}

// --- killed ---

class KilledAt : public testing::TestWithParam<int64_t> {};

TEST_P(KilledAt, GoesOnToTheSameBits) {
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
  EXPECT_EQ(killed.status.code, 1);
  EXPECT_THAT(killed.errors, HasSubstr("SIGKILL"));
  EXPECT_FALSE(file_exists(out + "/summary.json"));
  const auto resumed = tandem_run(arguments + kResume);
  ASSERT_TRUE(resumed.status.ok()) << resumed.errors;
  EXPECT_THAT(resumed.errors, HasSubstr("resuming from " + out));
  EXPECT_EQ(hash_in(out), uninterrupted());
}

// First epoch, its end, the middle of the second, the last step but one.
INSTANTIATE_TEST_SUITE_P(Resume, KilledAt, testing::Values(3, 11, 15, kSteps - 2));

TEST(Resume, MetricsShowEachStepOnce) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto arguments =
      trained(out) + Arguments{"--checkpoint-every", "30", "--keep-checkpoints", "0"};
  ASSERT_TRUE(tandem_run(arguments).status.ok());
  const auto before = read_file(out + "/metrics.jsonl");
  // Half a line, as a killed run leaves it.
  replace_file(out + "/metrics.jsonl", before + "{\"format_version\":1,\"ki");
  const auto resumed =
      tandem_run(arguments + Arguments{"--resume", checkpoint(out, 30)});
  ASSERT_TRUE(resumed.status.ok()) << resumed.errors;
  // The lines up to speed and time, which no two runs share.
  const auto losses = [](const std::string& text) {
    std::vector<std::string> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      found.push_back(line.substr(
          0,
          std::min(line.find(",\"samples_per_second"), line.find(",\"train_seconds"))));
    }
    return found;
  };
  EXPECT_EQ(losses(read_file(out + "/metrics.jsonl")), losses(before));
}

TEST(Resume, ABadCheckpointLeavesTheRunsFilesAsTheyWere) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const Arguments run = {"train", "--model", "simplenet", "--limit",
                         "64",    "--out",   out};
  ASSERT_TRUE(tandem_run(run).status.ok());
  const auto config = read_file(out + "/config.toml");
  const auto metrics = read_file(out + "/metrics.jsonl");
  const auto refused = tandem_run(
      run + Arguments{"--resume", out + "/checkpoints/nosuch", "--lr", "0.5"});
  EXPECT_EQ(refused.status.code, 1);
  EXPECT_EQ(read_file(out + "/config.toml"), config);
  EXPECT_EQ(read_file(out + "/metrics.jsonl"), metrics);
  const auto elsewhere = scratch / "new";
  EXPECT_FALSE(tandem_run({"train", "--model", "simplenet", "--limit", "64", "--resume",
                           "/nosuch", "--out", elsewhere})
                   .status.ok());
  EXPECT_FALSE(file_exists(elsewhere));
}

TEST(Resume, AFinishedRunStaysAsItWas) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const Arguments run = {"train", "--model", "simplenet", "--limit",
                         "640",   "--out",   out};
  ASSERT_TRUE(tandem_run(run).status.ok());
  const auto summary = read_file(out + "/summary.json");
  const auto metrics = read_file(out + "/metrics.jsonl");
  for (const Arguments& more : {kResume, kResume + Arguments{"--dry-run"}}) {
    const auto again = tandem_run(run + more);
    EXPECT_TRUE(again.status.ok()) << again.errors;
    EXPECT_THAT(again.output, HasSubstr("Test set: "));
    EXPECT_EQ(read_file(out + "/summary.json"), summary);
    EXPECT_EQ(read_file(out + "/metrics.jsonl"), metrics);
  }
}

TEST(Resume, FromAnOlderCheckpointLeavesTheLaterOnes) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const Arguments run = {"train",   "--model", "simplenet",
                         "--limit", "640",     "--checkpoint-every",
                         "2",       "--out",   out};
  ASSERT_TRUE(tandem_run(run + Arguments{"--keep-checkpoints", "0"}).status.ok());
  const auto again = tandem_run(
      run +
      Arguments{
          "--resume", checkpoint(out, 4), "--lr", "0.1", "--keep-checkpoints", "3"});
  ASSERT_TRUE(again.status.ok()) << again.errors;
  EXPECT_THAT(
      again.errors,
      HasSubstr("lr 0.1 instead of -1.0, keep_checkpoints 3 instead of 0"));
  EXPECT_THAT(
      list_directory(out + "/checkpoints"),
      testing::ElementsAre(
          "left-step-00000006", "left-step-00000008", "left-step-00000010",
          "step-00000006", "step-00000008", "step-00000010"));
  const auto elsewhere = tandem_run(
      {"train", "--model", "simplenet", "--limit", "640", "--resume",
       checkpoint(out, 8), "--out", scratch / "other"});
  EXPECT_TRUE(elsewhere.status.ok()) << elsewhere.errors;
  const auto mixed =
      tandem_run(run + Arguments{"--resume", checkpoint(scratch / "other", 10)});
  EXPECT_EQ(mixed.status.code, 2);
  EXPECT_THAT(mixed.errors, HasSubstr("earlier run"));
}

// A service manager signals every process, and the launcher then says it again.
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
  EXPECT_EQ(stopped.status.code, 1);
  EXPECT_THAT(stopped.errors, HasSubstr("--resume auto"));
  expect_saved_once_and_resumes(out);
}

// --- stopped ---

class StoppedBy : public testing::TestWithParam<int> {};

TEST_P(StoppedBy, OneRanksSignalStopsAllAtOneStepAndResumesToTheSameBits) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto stopped =
      disturb_after_report(signalled(out), out, [](const std::vector<pid_t>& workers) {
        ASSERT_EQ(workers.size(), 3u);
        kill(workers.back(), GetParam());
      });
  EXPECT_EQ(stopped.status.code, 1);
  EXPECT_THAT(stopped.errors, HasSubstr("stopped by a signal to rank"));
  EXPECT_THAT(stopped.errors, HasSubstr("--resume auto"));
  expect_saved_once_and_resumes(out);
}

INSTANTIATE_TEST_SUITE_P(Resume, StoppedBy, testing::Values(SIGTERM, SIGINT));

TEST(Resume, ASignalToTheLauncherStopsAllRanks) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto stopped =
      disturb_after_report(signalled(out), out, [&](const std::vector<pid_t>& workers) {
        ASSERT_FALSE(workers.empty());
        kill(parent_of_process(workers.front()), SIGTERM);
      });
  EXPECT_NE(stopped.status.code, 0);
  expect_saved_once_and_resumes(out);
}

TEST(Resume, SigusrOneToOneRankSavesAndGoesOn) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto saved = disturb_after_report(
      signalled(out) + Arguments{"--keep-checkpoints", "0"}, out,
      [](const std::vector<pid_t>& workers) {
        ASSERT_EQ(workers.size(), 3u);
        kill(workers.back(), SIGUSR1);
      });
  EXPECT_TRUE(saved.status.ok()) << saved.errors;
  // One beside those of the three epochs' ends.
  EXPECT_EQ(list_directory(out + "/checkpoints").size(), 4u);
  EXPECT_EQ(hash_in(out), uninterrupted(kSignalBatch));
}

TEST(Resume, MinutesSaveToo) {
  const Scratch scratch;
  const auto out = scratch / "run";
  run_to_end(
      trained(out) +
          Arguments{"--checkpoint-minutes", "0.0001", "--keep-checkpoints", "0"},
      out);
  EXPECT_GT(list_directory(out + "/checkpoints").size(), 3u);
}

// --- torn ---

TEST(Resume, ATornNewestCheckpointIsNamedAndTheOneBeforeUsed) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto arguments =
      trained(out) + kThreeRanks + Arguments{"--checkpoint-every", "10"};
  const auto whole = run_to_end(arguments, out);
  const auto newest = checkpoint(out, kSteps);
  const auto file = newest + "/training.safetensors";
  const auto bytes = read_file(file);
  replace_file(file, bytes.substr(0, bytes.size() / 2));
  const auto resumed = tandem_run(arguments + kResume);
  ASSERT_TRUE(resumed.status.ok()) << resumed.errors;
  EXPECT_THAT(resumed.errors, HasSubstr(file));
  EXPECT_THAT(resumed.errors, HasSubstr("going back to the one before it"));
  EXPECT_THAT(resumed.errors, HasSubstr("step-00000030 at step 30"));
  EXPECT_EQ(hash_in(out), whole);
}

// --- moved to another number of ranks ---

struct Move {
  const char* name;
  Arguments from;
  Arguments to;
  // Of the test loss; 0: the same bits, which two gradients have in any order and more
  // have not; -1: the global batch is another, so only the audit speaks.
  double tolerance;
};

void PrintTo(const Move& move, std::ostream* out) {
  *out << move.name;
}

class MovedRun : public testing::TestWithParam<Move> {};

// In float64; the audit of each epoch proves that every sample left is read once.
TEST_P(MovedRun, ReadsWhatIsLeftOnce) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const Arguments common = {"train",   "--model",
                            "convnet", "--limit",
                            "1000",    "--epochs",
                            "2",       "--precision",
                            "fp64",    "--schedule",
                            "step",    "--log-every",
                            "1",       "--checkpoint-every",
                            "5",       "--eval-batch-size",
                            "100",     "--keep-checkpoints",
                            "0",       "--out"};
  const auto whole = run_to_end(common + Arguments{out} + GetParam().from, out);
  const auto moved_out = scratch / "moved";
  const auto moved = tandem_run(
      common + Arguments{moved_out, "--resume", checkpoint(out, 5)} + GetParam().to);
  ASSERT_TRUE(moved.status.ok()) << moved.errors;
  const double tolerance = GetParam().tolerance;
  if (tolerance == 0) {
    EXPECT_EQ(hash_in(moved_out), whole);
  } else if (tolerance > 0) {
    const double loss = json_number(out + "/summary.json", "test_loss");
    EXPECT_NEAR(
        json_number(moved_out + "/summary.json", "test_loss"), loss, tolerance * loss);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Resume, MovedRun,
    testing::Values(
        Move{
            "two_ranks_to_one",
            {"--nproc", "2", "--batch-size", "32"},
            {"--nproc", "1", "--accumulate", "2"},
            0},
        Move{
            "one_rank_to_two",
            {"--accumulate", "2", "--batch-size", "32"},
            {"--nproc", "2", "--accumulate", "1"},
            0},
        Move{
            "two_ranks_to_four",
            {"--nproc", "2", "--batch-size", "32"},
            {"--nproc", "4", "--batch-size", "16"},
            1e-9},
        Move{
            "four_ranks_to_three",
            {"--nproc", "4", "--batch-size", "32"},
            {"--nproc", "3", "--batch-size", "32"},
            -1},
        Move{
            "three_ranks_to_two",
            {"--nproc", "3", "--batch-size", "32"},
            {"--nproc", "2", "--batch-size", "32"},
            -1}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace tandem
