// Hogwild in the real program: ranks step at the same time, and the result is as
// accurate as that of one rank.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tandem::hogwild_test {

using testing::ContainsRegex;

struct Step {
  // In microseconds.
  double start = 0;
  double end = 0;
};

// Returns the steps in the trace of a rank.
std::vector<Step> steps_in(const std::string& trace) {
  std::vector<Step> steps;
  const auto json = nlohmann::json::parse(read_file(trace));
  for (const auto& event : json["traceEvents"]) {
    if (event["name"].get<std::string>().rfind("ProfilerStep#", 0) == 0) {
      const double start = event["ts"];
      steps.push_back({start, start + event["dur"].get<double>()});
    }
  }
  return steps;
}

int64_t overlapping(const std::vector<Step>& ones, const std::vector<Step>& others) {
  int64_t count = 0;
  for (const auto& one : ones) {
    for (const auto& other : others) {
      if (one.start < other.end && other.start < one.end) {
        ++count;
        break;
      }
    }
  }
  return count;
}

class Hogwild : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    Ranks, Hogwild, testing::Values("thread", "process"),
    [](const auto& row) { return std::string(row.param); });

TEST_P(Hogwild, StepsOfDifferentRanksOverlapInTime) {
  const Scratch scratch;
  run_ok(
      {"train", "--strategy", "hogwild", "--nproc", "2", "--rank-type", GetParam(),
       "--model", "net5x5", "--optimizer", "sgd", "--lr", "0.1", "--limit", "1280",
       "--trace", "--out", scratch / "run"});
  const std::vector<std::vector<Step>> steps = {
      steps_in(scratch / "run/trace/rank-0.json"),
      steps_in(scratch / "run/trace/rank-1.json")};
  // The trace has all ten steps of each rank.
  ASSERT_EQ(steps[0].size(), 10u);
  ASSERT_EQ(steps[1].size(), 10u);
  for (const auto& rank : steps) {
    EXPECT_EQ(overlapping(rank, {{rank[0].start - 10, rank[0].start - 1}}), 0);
    for (size_t i = 1; i < rank.size(); ++i) {
      EXPECT_GE(rank[i].start, rank[i - 1].end);
    }
  }
  EXPECT_GT(overlapping(steps[0], steps[1]), 0);
}

double accuracy_of(const Arguments& more) {
  const Scratch scratch;
  run_ok(with(
      {"train",  "--model",      "simplenet",    "--optimizer", "sgd", "--lr",
       "0.02",   "--limit",      "6000",         "--epochs",    "8",   "--schedule",
       "cosine", "--batch-size", "32",           "--log-line",  "off", "--seed",
       "1",      "--out",        scratch / "run"},
      more));
  return json_number(scratch / "run/summary.json", "test_accuracy");
}

TEST_P(Hogwild, IsAsAccurateAsOneRank) {
  const double one = accuracy_of({});
  EXPECT_GE(one, 80);
  EXPECT_NEAR(
      accuracy_of({"--strategy", "hogwild", "--nproc", "3", "--rank-type", GetParam()}),
      one, 0.5);
}

TEST_P(Hogwild, ResumesFromACheckpoint) {
  const Scratch scratch;
  const Arguments command = {"train",     "--strategy",  "hogwild",      "--nproc",
                             "4",         "--rank-type", GetParam(),     "--model",
                             "simplenet", "--lr",        "0.01",         "--optimizer",
                             "sgd",       "--momentum",  "0.9",          "--limit",
                             "1280",      "--out",       scratch / "run"};
  run_ok(command);
  run_ok(with(command, {"--resume", "auto", "--epochs", "2"}));
  // An epoch has five steps of batch 64.
  EXPECT_EQ(json_number(scratch / "run/summary.json", "steps"), 10);
}

TEST(HogwildRecipe, PrintsTheTutorialsLines) {
  const auto result = run_ok(
      {"train", recipe_file("hogwild"), "--data", "digits", "--limit", "640",
       "--epochs", "2"});
  // The size of the whole data set: the tutorial prints len(dataloader.dataset).
  expect_parts(
      result.output,
      {"640 data samples ---> Worker: 0\n", "640 data samples ---> Worker: 1\n"});
  for (const char* start : {"rank: 0 -- epoch: 2", "rank: 1 -- epoch: 2"}) {
    EXPECT_THAT(
        result.output, ContainsRegex(
                           std::string(start) +
                           " --> loss: [0-9]\\.[0-9]{6} -- accuracy: [0-9]+\\.[0-9]%"));
  }
  EXPECT_THAT(result.output, ContainsRegex("Time taken: [0-9.e-]+ minutes\n$"));
}

}  // namespace tandem::hogwild_test
