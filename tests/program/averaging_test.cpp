// Local SGD and MPI ranks in the real program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <future>
#include <regex>

#include "program.h"
#include "tandem/launch/mpirun.h"
#include "tests/program/ranks/workers.h"

namespace tandem::averaging_test {

using testing::HasSubstr;
using testing::Not;

const std::string kRecipe = recipe_file("local-sgd-mpi");

// Two epochs of 14 steps; momentum and batch norm have different values on each rank.
Arguments averaging(const std::string& out, const std::string& ranks = "3") {
  return {"train",       "--strategy", "averaging", "--model",      "convnet_bn",
          "--optimizer", "sgd",        "--lr",      "0.05",         "--momentum",
          "0.9",         "--limit",    "320",       "--batch-size", "8",
          "--epochs",    "2",          "--nproc",   ranks,          "--share",
          "scatter",     "--out",      out};
}

CommandResult run_under_mpirun(
    int ranks, const Arguments& arguments, const std::string& name = "tandem") {
  return run_command(mpirun_command(ranks, with({program(name)}, arguments)), {}, 300);
}

TEST(Averaging, ProcessAndThreadRanksGiveEqualBits) {
  for (const std::string every : {"3", "epoch", "end"}) {
    const Scratch scratch;
    const auto run = [&](const std::string& ranks) {
      const auto out = scratch / ranks;
      run_ok(with(averaging(out), {"--rank-type", ranks, "--average-every", every}));
      return hash_of(out);
    };
    const auto processes = run("process");
    EXPECT_EQ(processes.size(), 64u);
    EXPECT_EQ(processes, run("thread")) << every;
  }
}

TEST(Averaging, ResumingBetweenAveragesChangesNoBit) {
  const Scratch scratch;
  const auto whole = scratch / "whole";
  const auto parts = scratch / "parts";
  const Arguments more = {"--rank-type", "thread",      "--average-every",
                          "7",           "--min-delta", "1e-9"};
  run_ok(with(
      averaging(whole), more, {"--checkpoint-every", "9", "--keep-checkpoints", "0"}));
  // Step 9 is in the middle of the first epoch, two steps after an average.
  const auto checkpoint = whole + "/checkpoints/step-00000009";
  EXPECT_TRUE(file_exists(checkpoint + "/rank-0001-of-0003.safetensors"));
  const auto result = run_ok(with(averaging(parts), more, {"--resume", checkpoint}));
  EXPECT_THAT(result.errors, Not(HasSubstr("holds no state")));
  EXPECT_EQ(hash_of(parts), hash_of(whole));
}

TEST(Averaging, ResumingAnOuterOptimizerChangesNoBit) {
  const Scratch scratch;
  const auto whole = scratch / "whole";
  const Arguments more = {"--rank-type",       "thread",   "--average-every", "4",
                          "--outer-optimizer", "nesterov", "--outer-lr",      "0.5"};
  run_ok(with(
      averaging(whole), more, {"--checkpoint-every", "9", "--keep-checkpoints", "0"}));
  const auto checkpoint = whole + "/checkpoints/step-00000009";
  const auto parts = scratch / "parts";
  run_ok(with(averaging(parts), more, {"--resume", checkpoint}));
  EXPECT_EQ(hash_of(parts), hash_of(whole));
  const auto refused = tandem_run(with(
      averaging(scratch / "other"),
      {"--rank-type", "thread", "--outer-optimizer", "none", "--resume", checkpoint}));
  EXPECT_THAT(refused.errors, HasSubstr("outer_optimizer"));
}

TEST(Averaging, AnotherNumberOfRanksResumesFromTheAverageWithAWarning) {
  const Scratch scratch;
  const auto first = scratch / "first";
  const auto second = scratch / "second";
  const Arguments more = {"--rank-type",        "thread", "--checkpoint-every", "9",
                          "--keep-checkpoints", "0"};
  run_ok(with(averaging(first), more));
  const auto result = run_ok(with(
      averaging(second, "4"), more,
      {"--resume", first + "/checkpoints/step-00000009"}));
  EXPECT_THAT(result.errors, HasSubstr("holds no state of 4 ranks"));
  EXPECT_EQ(hash_of(second).size(), 64u);
}

// Returns the number of matches.
int matches_in(const std::string& text, const std::string& pattern) {
  const std::regex wanted(pattern);
  return static_cast<int>(std::distance(
      std::sregex_iterator(text.begin(), text.end(), wanted), std::sregex_iterator()));
}

TEST(Averaging, AConvergedRankTakesPartInAveragesUntilTheEnd) {
  const Scratch scratch;
  const auto out = scratch / "run";
  // With logits, losses differ enough for one rank to continue after another has
  // converged.
  const auto logits = source_dir() + "/recipes/local-sgd-mpi-logits.toml";
  const auto result = run_ok(
      {"train",       logits,   "--launcher", "tandem", "--backend",       "auto",
       "--rank-type", "thread", "--nproc",    "3",      "--data",          "digits",
       "--limit",     "960",    "--epochs",   "40",     "--average-every", "4",
       "--min-delta", "0.2",    "--out",      out});
  int epochs = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const auto number = std::to_string(rank);
    EXPECT_EQ(
        matches_in(
            result.output,
            "--- Converged on rank " + number + " after [0-9]+ epochs ---"),
        1);
    const int mine = matches_in(
        result.output, "rank: " + number +
                           " -- epoch: [0-9]+ --> loss: [0-9.]+ -- accuracy: [0-9.]+%");
    EXPECT_GT(mine, 1);
    epochs = std::max(epochs, mine);
  }
  EXPECT_EQ(json_number(out + "/summary.json", "epochs"), epochs);
  EXPECT_LT(epochs, 40);
  // A run that all ranks ended ends immediately when resumed.
  const auto again = run_ok({"train", out + "/config.toml", "--resume", "auto"});
  EXPECT_EQ(matches_in(again.output, "-- epoch: "), 0);
}

TEST(WithoutMpirun, RecipePrintsTheCommand) {
  const auto result = tandem_run({"train", kRecipe, "--nproc", "3"});
  expect_error_line(
      result, 2,
      {"run: mpirun ", " -np 3 ", shell_line({"train", kRecipe, "--nproc", "3"})});
}

TEST(WithoutMpirun, BackendMpiExitsWithTwo) {
  for (const std::string name : {"tandem", "tandem-worker"}) {
    const auto result = run_command({program(name), "train", "--backend", "mpi"});
    expect_error_line(result, 2, {"mpirun"});
  }
}

TEST(MpiRun, RecipePrintsTheTutorialsLines) {
  TANDEM_NEEDS_MPI();
  const auto result = checked(run_under_mpirun(
      2, {"train", kRecipe, "--data", "digits", "--limit", "961", "--epochs", "2"}));
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(result.output, HasSubstr("480 data samples ---> Worker: " + rank));
    for (const std::string epoch : {"1", "2"}) {
      EXPECT_EQ(
          matches_in(
              result.output, "rank: " + rank + " -- epoch: " + epoch +
                                 " --> loss: [0-9]\\.[0-9]{6} -- accuracy: "
                                 "[0-9]+\\.[0-9]%"),
          1);
    }
  }
  EXPECT_EQ(matches_in(result.output, "Total Time taken by 0 : [0-9.]+ minutes"), 1);
  EXPECT_EQ(matches_in(result.output, "Test set: "), 1);
  EXPECT_THAT(
      result.output + result.errors, HasSubstr("1 of 961 samples are left out"));
}

// With more ranks, sums depend on the order.
TEST(MpiRun, GivesTheBitsOfGlooOnTwoRanks) {
  TANDEM_NEEDS_MPI();
  const Scratch scratch;
  const Arguments run = {"train", "--model", "convnet", "--limit", "640", "--out"};
  const auto gloo = tandem_run(with(run, {scratch / "gloo", "--nproc", "2"}));
  const auto mpi = run_under_mpirun(
      2, with(run, {scratch / "mpi", "--backend", "mpi"}), "tandem-worker");
  EXPECT_TRUE(gloo.status.ok()) << gloo.errors;
  EXPECT_TRUE(mpi.status.ok()) << mpi.output << mpi.errors;
  EXPECT_EQ(hash_of(scratch / "gloo").size(), 64u);
  EXPECT_EQ(hash_of(scratch / "mpi"), hash_of(scratch / "gloo"));
  EXPECT_EQ(json_value(scratch / "mpi/summary.json", "backend"), "mpi");
}

TEST(MpiRun, ARanksErrorIsPrintedAndEndsTheRun) {
  TANDEM_NEEDS_MPI();
  // Only rank 0 reads, and fails; rank 1 waits for it.
  const auto result = run_under_mpirun(
      2, {"train", kRecipe, "--data", "/nowhere", "--timeout-seconds", "250"});
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(
      result.output + result.errors, HasSubstr("error: [data] data is '/nowhere'"));
}

TEST(MpiRun, NamesAKilledRank) {
  TANDEM_NEEDS_MPI();
  const Scratch scratch;
  const auto mark = scratch / "killed";
  auto run = std::async(std::launch::async, [&] {
    return run_under_mpirun(
        2, {"train", "--backend", "mpi", "--model", "convnet", "--epochs", "1000",
            "--limit", "1280", "--out", mark});
  });
  wait_until_it_reports(mark);
  const auto workers = workers_of(mark);
  EXPECT_EQ(workers.size(), 2u);
  if (!workers.empty()) {
    kill(workers.back(), SIGKILL);
  }
  const auto result = run.get();
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(result.output + result.errors, HasSubstr("signal 9 (Killed)"));
  EXPECT_TRUE(workers_of(mark).empty());
}

}  // namespace tandem::averaging_test
