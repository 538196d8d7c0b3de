// Settings of recipes, and values that the program chooses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "program.h"
#include "tandem/config/run_config.h"
#include "tandem/config/tutorial_figures.h"

namespace tandem::auto_choices_test {

using testing::HasSubstr;
using testing::Not;

const Variables kNoAvx512 = {{"ONEDNN_MAX_CPU_ISA", "AVX2"}};

// Two steps of a recipe on digits.
CommandResult dry_run(const Arguments& more, const Variables& variables = {}) {
  return run_ok(
      with({"train", "--dry-run", "--data", "digits", "--limit", "600"}, more),
      variables);
}

// As the programs of the tutorials do.
TEST(Recipes, OfTutorialsWithDataParallelismUpdateAllParametersOnEveryRank) {
  int found = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() + "/recipes")) {
    const std::string name = entry.path().stem();
    if (read_scaling_recipe(entry.path()) ||
        read_recipe_summary(entry.path()).tutorial.empty()) {
      continue;
    }
    RunConfig config;
    read_recipe(config, entry.path());
    if (config.strategy.kind == StrategyKind::data_parallel) {
      EXPECT_EQ(config.strategy.shard, Sharding::none) << name;
      ++found;
    }
  }
  EXPECT_EQ(found, 12);
}

TEST(Recipes, TheFirstLineNamesTheSharding) {
  const Scratch scratch;
  const auto by_hand =
      dry_run({recipe_file("ddp-manual"), "--nproc", "3", "--out", scratch / "a"});
  expect_parts(
      by_hand.output, {"3 ranks over shm, executor compiled, fp32, "
                       "shard none\n",
                       "Finished init process group. Current rank:  2"});
  EXPECT_EQ(json_value(scratch / "a/summary.json", "shard"), "none");
  const auto ours =
      dry_run({recipe_file("quickstart"), "--nproc", "3", "--out", scratch / "b"});
  EXPECT_THAT(
      ours.output,
      HasSubstr("3 ranks over shm, executor compiled, fp32, shard optimizer\n"));
  EXPECT_EQ(json_value(scratch / "b/summary.json", "shard"), "optimizer");
}

TEST(Recipes, WithPrecisionAutoUseFloat32IfTheCpuHasNoBfloat16) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  const auto result = dry_run({recipe_file("mnist-99"), "--out", out}, kNoAvx512);
  EXPECT_THAT(result.output, HasSubstr("executor compiled, fp32, "));
  EXPECT_THAT(result.errors, Not(HasSubstr("bfloat16")));
  EXPECT_EQ(json_value(out + "/summary.json", "precision"), "fp32");
  EXPECT_THAT(read_file(out + "/config.toml"), HasSubstr("\nprecision = \"fp32\"\n"));
}

TEST(Recipes, MixedPrecisionOfTutorial004IsFloat16OnAnyCpu) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  const auto result =
      dry_run({recipe_file("amp-fp16"), "--nproc", "3", "--out", out}, kNoAvx512);
  EXPECT_THAT(result.output, HasSubstr("executor compiled, fp16, shard none\n"));
  EXPECT_THAT(result.errors, HasSubstr("it computes float32 products"));
  EXPECT_THAT(result.errors, Not(HasSubstr("without a loss scale")));
  EXPECT_EQ(json_value(out + "/summary.json", "precision"), "fp16");
  EXPECT_EQ(json_number(out + "/summary.json", "loss_scale"), 65536);
}

}  // namespace tandem::auto_choices_test
