// Commands that users of other tools try first: they work, or one line names the
// command of tandem.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "tandem/base/rank_env.h"

namespace tandem::first_hour_test {

using testing::HasSubstr;
using testing::StartsWith;

TEST(FirstHour, ABuildTreeHasTheRecipesOfItsSources) {
  const Scratch scratch;
  const auto run = [&](const std::string& arguments) {
    return run_command(
        {"sh", "-c", "cd \"$1\" && exec \"$0\" " + arguments, program(),
         scratch.path()});
  };
  EXPECT_THAT(run("recipes").output, HasSubstr("\nquickstart "));
  checked(run("train quickstart --limit 64 --dry-run --nproc 1"));
  const auto wrong = run("train quikstart");
  expect_exit(wrong, 2, {"did you mean 'quickstart'?", "amp-fp16, amp-nccl, "});
}

TEST(FirstHour, AcceptsNamesOfOtherTools) {
  const auto result = run_ok(
      {"train", "--strategy", "ddp", "--learning-rate", "0.5", "--nproc", "3",
       "--model", "simplenet", "--limit", "192"});
  EXPECT_THAT(result.output, HasSubstr("data_parallel, 3 ranks"));
  EXPECT_THAT(tandem_run({"--version"}).output, StartsWith("tandem "));
}

TEST(FirstHour, ARunsDirectoryStandsForItsNewestCheckpoint) {
  const Scratch scratch;
  const auto run = scratch / "run";
  const Arguments train = {"train", "--model", "simplenet", "--limit", "640",
                           "--lr",  "0.1",     "--out",     run};
  run_ok(train);
  const auto evaluate = [](const std::string& checkpoint) {
    return tandem_run({"eval", "--checkpoint", checkpoint, "--limit", "640"});
  };
  const auto newest = checked(evaluate(run + "/checkpoints/step-00000010"));
  EXPECT_EQ(evaluate(run).output, newest.output);
  EXPECT_EQ(evaluate(run + "/checkpoints").output, newest.output);
  run_ok({"export", "--checkpoint", run, "--out", scratch / "model.pt"});
  run_ok({"train", "--model", "simplenet", "--limit", "64", "--init", run});
}

TEST(FirstHour, ADryRunResumesInTheMiddleOfAnEpoch) {
  const Scratch scratch;
  const Arguments train = {"train", "--model", "simplenet",    "--limit",
                           "640",   "--out",   scratch / "run"};
  run_ok(with(train, {"--checkpoint-every", "4", "--keep-checkpoints", "0"}));
  const auto result = run_ok(
      {"train", "--model", "simplenet", "--limit", "640", "--resume",
       scratch / "run/checkpoints/step-00000004", "--dry-run", "--log-every", "1"});
  EXPECT_THAT(result.output, HasSubstr("step 6/6"));
}

TEST(FirstHour, ZeroEpochsSaveTheInitialWeights) {
  const Scratch scratch;
  const auto result = run_ok(
      {"train", "--model", "simplenet", "--limit", "64", "--epochs", "0", "--out",
       scratch / "run"});
  EXPECT_THAT(result.output, HasSubstr("Nothing to train: epochs is 0"));
  EXPECT_TRUE(file_exists(scratch / "run/checkpoints/step-00000000/model.safetensors"));
}

TEST(FirstHour, WarnsOfManyRanksOnFewCpus) {
  const auto cpus = std::to_string(usable_cpus());
  const auto ranks = std::to_string(2 * usable_cpus() + 1);
  const auto result = run_ok(
      {"train", "--rank-type", "thread", "--nproc", ranks, "--model", "simplenet",
       "--limit", "640"});
  EXPECT_THAT(result.errors, HasSubstr(ranks + " ranks share " + cpus + " CPUs"));
}

}  // namespace tandem::first_hour_test
