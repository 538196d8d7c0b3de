// Files in the directory of a run before and after it is resumed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/program/resume/resumed_run.h"

namespace tandem::resume_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Resume, MetricsShowEachStepOnce) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto arguments = with(trained(out), {"--checkpoint-every", "30"}, kKeepAll);
  run_ok(arguments);
  const auto before = read_file(out + "/metrics.jsonl");
  // Half a line, as a killed run leaves it.
  replace_file(out + "/metrics.jsonl", before + "{\"format_version\":1,\"ki");
  run_ok(with(arguments, {"--resume", checkpoint(out, 30)}));
  // The lines of results without speed and time, which differ between runs.
  const auto losses = [](const std::string& text) {
    std::vector<std::string> found;
    for (const auto& line : split(text, '\n')) {
      if (line.find("\"resume\"") != std::string::npos) {
        continue;
      }
      found.push_back(line.substr(
          0,
          std::min(line.find(",\"samples_per_second"), line.find(",\"train_seconds"))));
    }
    return found;
  };
  EXPECT_EQ(losses(read_file(out + "/metrics.jsonl")), losses(before));
}

TEST(Resume, TimesAndSpeedCoverAllStarts) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto arguments = with(trained(out), {"--checkpoint-every", "8"}, kKeepAll);
  run_ok(arguments);
  const double first_program = json_number(out + "/summary.json", "program_seconds");
  for (const int64_t step : {16, 40, 64}) {
    run_ok(with(arguments, {"--resume", checkpoint(out, step)}));
  }
  std::vector<double> seconds;
  std::vector<int64_t> resumed;
  for (const auto& line : metrics_of(out)) {
    seconds.push_back(line["train_seconds"]);
    if (line["kind"] == "resume") {
      resumed.push_back(line["step"]);
    }
  }
  EXPECT_TRUE(std::is_sorted(seconds.begin(), seconds.end()))
      << testing::PrintToString(seconds);
  EXPECT_EQ(resumed, (std::vector<int64_t>{16, 40, 64}));
  const auto summary = out + "/summary.json";
  const double all = json_number(summary, "train_seconds");
  EXPECT_GE(all, seconds.back());
  EXPECT_NEAR(json_number(summary, "samples_per_second") * all, 3 * 1000, 1e-3);
  EXPECT_GT(json_number(summary, "program_seconds"), first_program);
  run_ok({"report", out});
  EXPECT_THAT(
      read_file(out + "/report.html"), HasSubstr("was resumed at step 16, 40, 64"));
}

TEST(Resume, ADamagedCheckpointChangesNoFiles) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const Arguments run = {"train", "--model", "simplenet", "--limit",
                         "64",    "--out",   out};
  run_ok(run);
  const auto config = read_file(out + "/config.toml");
  const auto metrics = read_file(out + "/metrics.jsonl");
  const auto refused =
      tandem_run(with(run, {"--resume", out + "/checkpoints/nosuch", "--lr", "0.5"}));
  EXPECT_EQ(refused.status.code, 1);
  EXPECT_EQ(read_file(out + "/config.toml"), config);
  EXPECT_EQ(read_file(out + "/metrics.jsonl"), metrics);
  const auto elsewhere = scratch / "new";
  EXPECT_FALSE(tandem_run({"train", "--model", "simplenet", "--limit", "64", "--resume",
                           "/nosuch", "--out", elsewhere})
                   .status.ok());
  EXPECT_FALSE(file_exists(elsewhere));
}

TEST(Resume, AFinishedRunDoesNotChange) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const Arguments run = {"train", "--model", "simplenet", "--limit",
                         "640",   "--out",   out};
  run_ok(run);
  const auto summary = read_file(out + "/summary.json");
  const auto metrics = read_file(out + "/metrics.jsonl");
  for (const auto& more : {kResume, with(kResume, {"--dry-run"})}) {
    const auto again = run_ok(with(run, more));
    EXPECT_THAT(
        again.output,
        AllOf(
            HasSubstr("Nothing left to train: the run ended after 1 epoch, at step 10"),
            HasSubstr("Test set: "), Not(HasSubstr("0 samples/s"))));
    EXPECT_EQ(read_file(out + "/summary.json"), summary);
    EXPECT_EQ(read_file(out + "/metrics.jsonl"), metrics);
  }
}

TEST(Resume, FromAnOlderCheckpointKeepsLaterCheckpoints) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const Arguments run = {"train",   "--model", "simplenet",
                         "--limit", "640",     "--checkpoint-every",
                         "2",       "--out",   out};
  run_ok(with(run, kKeepAll));
  const auto again = run_ok(with(
      run, {"--resume", checkpoint(out, 4), "--lr", "0.1", "--keep-checkpoints", "3"}));
  EXPECT_THAT(
      again.errors,
      HasSubstr("lr 0.1 instead of -1.0, keep_checkpoints 3 instead of 0"));
  EXPECT_THAT(
      list_directory(out + "/checkpoints"),
      testing::ElementsAre(
          "left-step-00000006", "left-step-00000008", "left-step-00000010",
          "step-00000006", "step-00000008", "step-00000010"));
  run_ok(
      {"train", "--model", "simplenet", "--limit", "640", "--resume",
       checkpoint(out, 8), "--out", scratch / "other"});
  const auto mixed =
      tandem_run(with(run, {"--resume", checkpoint(scratch / "other", 10)}));
  expect_exit(mixed, 2, {"earlier run"});
}

TEST(Resume, SavesAfterMinutes) {
  const Scratch scratch;
  const auto out = scratch / "run";
  run_ok(with(trained(out), {"--checkpoint-minutes", "0.0001"}, kKeepAll));
  EXPECT_GT(list_directory(out + "/checkpoints").size(), 3u);
}

TEST(Resume, UsesTheCheckpointBeforeATruncatedOne) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto arguments = with(trained(out), kThreeRanks, {"--checkpoint-every", "10"});
  const auto whole = run_to_end(arguments, out);
  const auto newest = checkpoint(out, kSteps);
  const auto file = newest + "/training.safetensors";
  const auto bytes = read_file(file);
  replace_file(file, bytes.substr(0, bytes.size() / 2));
  const auto resumed = run_ok(with(arguments, kResume));
  expect_parts(
      resumed.errors,
      {file, "using the previous checkpoint", "step-00000030 at step 30"});
  EXPECT_EQ(hash_of(out), whole);
}

}  // namespace tandem::resume_test
