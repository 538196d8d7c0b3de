// Recipes, keys, flags and values that were renamed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "app/recipe_name.h"
#include "app/train_flags.h"
#include "tandem/config/tutorial_figures.h"
#include "tests/app/refusals.h"
#include "tests/places.h"
#include "tests/scratch.h"

namespace tandem::app::old_names_test {

constexpr std::pair<const char*, const char*> kRecipes[] = {
    {"000-gloo", "gloo-machines"},
    {"000-single", "single-process"},
    {"001-hogwild", "hogwild"},
    {"001-mpi-averaging", "local-sgd-mpi"},
    {"001-mpi-averaging-logits", "local-sgd-mpi-logits"},
    {"001-scaling", "scaling"},
    {"002-data-parallel", "data-parallel-module"},
    {"002-ddp", "ddp-linear"},
    {"002-hybrid", "hybrid"},
    {"002-model-parallel", "model-parallel"},
    {"002-pipeline", "pipeline-1f1b"},
    {"002-pipeline-gpipe", "pipeline-gpipe"},
    {"002-rpc", "parameter-server"},
    {"003-buffers", "batch-norm-buffers"},
    {"003-buffers-sync", "sync-batch-norm"},
    {"003-ddp", "ddp"},
    {"003-own-ddp", "ddp-manual"},
    {"003-own-ddp-flat", "ddp-manual-flat"},
    {"003-own-ddp-overlap", "ddp-manual-overlap"},
    {"003-single", "single-net"},
    {"004-amp", "amp-fp16"},
    {"004-nccl-amp", "amp-nccl"},
    {"004-nodes-gpus", "nodes-gpus"},
    {"004-single", "single-convnet"},
    {"mnist-99", "mnist-99"},
    {"quickstart", "quickstart"}};

std::string in_repository(const std::string& name) {
  return source_dir() + "/recipes/" + name + ".toml";
}

TEST(OldNames, OfRecipesLeadToTheirNewFiles) {
  for (const auto& [before, now] : kRecipes) {
    EXPECT_EQ(recipe_path(in_repository(before)), in_repository(now));
  }
  EXPECT_EQ(std::size(kRecipes), recipes_in(source_dir() + "/recipes").size());
}

TEST(OldNames, OfRecipesWorkInTheProgramsOfUsers) {
  RunConfig before;
  read_recipe(before, in_repository("003-own-ddp-overlap"));
  EXPECT_EQ(before.name, "ddp-manual-overlap");
}

TEST(OldNames, OfRecipesWorkInOtherRecipes) {
  const Scratch scratch;
  for (const char* name : {"ddp", "amp-fp16", "nodes-gpus"}) {
    std::filesystem::copy_file(
        in_repository(name), scratch / (std::string(name) + ".toml"));
  }
  replace_file(
      scratch / "own.toml",
      "base = \"003-ddp.toml\"\nwithout_gpu = \"004-amp.toml\"\nepochs = 3\n");
  RunConfig own;
  read_recipe(own, scratch / "own.toml");
  EXPECT_EQ(own.name, "ddp");
  EXPECT_EQ(own.training.epochs, 3);
  EXPECT_EQ(read_without_gpu(scratch / "own.toml"), scratch / "amp-fp16.toml");
  replace_file(scratch / "many.toml", "[scaling]\nrecipes = [\"003-ddp.toml\"]\n");
  EXPECT_EQ(
      read_scaling_recipe(scratch / "many.toml")->recipes,
      std::vector<std::string>{scratch / "ddp.toml"});
}

TEST(OldNames, AFileWithAnOldNameIsReadItself) {
  const Scratch scratch;
  replace_file(scratch / "003-ddp.toml", "name = \"mine\"\n");
  replace_file(scratch / "ddp.toml", "name = \"other\"\n");
  EXPECT_EQ(recipe_path(scratch / "003-ddp.toml"), scratch / "003-ddp.toml");
}

TEST(OldNames, OfFlagsKeysAndValuesAreRead) {
  const Scratch scratch;
  replace_file(scratch / "a.toml", "ranks = \"thread\"\nmodel = \"mymodel\"\n");
  for (const Arguments& arguments : std::vector<Arguments>{
           {"--ranks", "thread", "--model", "mymodel"},
           {"--ranks=thread", "--model=mymodel"},
           {"--set", "ranks=thread", "--set", "model=mymodel"},
           {scratch / "a.toml"}}) {
    SCOPED_TRACE(join(arguments, " "));
    const RunConfig config = parse_train_arguments(arguments);
    EXPECT_EQ(config.ranks.kind, RankKind::thread);
    EXPECT_EQ(config.model.kind, ModelKind::lenet3x3);
    EXPECT_THAT(
        to_toml(config), testing::AllOf(
                             testing::HasSubstr("\nrank_type = \"thread\"\n"),
                             testing::HasSubstr("\nmodel = \"lenet3x3\"\n")));
  }
  const auto config =
      parse_train_arguments({"--executor", "onednn", "--strategy", "ddp"});
  EXPECT_EQ(config.exec.executor, ExecutorKind::compiled);
  EXPECT_EQ(config.strategy.kind, StrategyKind::data_parallel);
}

TEST(OldNames, NextToTheNewNameAreErrors) {
  const Scratch scratch;
  replace_file(scratch / "a.toml", "rank_type = \"thread\"\nranks = \"process\"\n");
  expect_refused(
      {{{"--ranks", "thread", "--rank-type", "thread"},
        {"--ranks and --rank-type", "leave one out"}},
       {{scratch / "a.toml"}, {"a.toml:2", "ranks is the old name of rank_type"}}},
      [](const Arguments& arguments) { parse_train_arguments(arguments); });
}

}  // namespace tandem::app::old_names_test
