// Recipes that divide the model, with real processes and few samples.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tandem::pipeline_test {

using testing::HasSubstr;

// Trains on digits; returns the hash of the parameters.
std::string train_recipe(
    const std::string& name, const std::string& out, const Arguments& more = {}) {
  const auto result = run_ok(with(
      {"train", recipe_file(name), "--data", "digits", "--limit", "640", "--epochs",
       "1", "--out", out, "--log-every", "5"},
      more));
  expect_parts(result.output, {"lenet3x3 (315146 parameters) on digits", "step 10/10"});
  EXPECT_THAT(result.errors, HasSubstr("stage 1: "));
  return hash_of(out);
}

TEST(PipelineRecipes, SchedulesDifferInMemoryButNotInResults) {
  const Scratch scratch;
  const auto few = train_recipe("pipeline-1f1b", scratch / "1f1b");
  const auto all = train_recipe("pipeline-gpipe", scratch / "gpipe");
  const auto threads =
      train_recipe("pipeline-1f1b", scratch / "threads", {"--rank-type", "thread"});
  EXPECT_EQ(few.size(), 64u);
  EXPECT_EQ(all, few);
  EXPECT_EQ(threads, few);
  const auto most_in_flight = [&](const std::string& run) {
    return json_value(scratch / (run + "/summary.json"), "stage_most_in_flight");
  };
  EXPECT_EQ(most_in_flight("1f1b"), "[2.0,1.0]");
  EXPECT_EQ(most_in_flight("gpipe"), "[4.0,4.0]");
}

// The run prints the layers of each stage; the result is the same.
TEST(PipelineRecipes, CutNamesTheFirstLayersOfStages) {
  const Scratch scratch;
  const auto train = [&](const std::string& run, const Arguments& cut) {
    return run_ok(
               with(
                   {"train", "--model", "net", "--strategy", "pipeline", "--nproc", "2",
                    "--limit", "32", "--out", scratch / run, "--precision", "fp64"},
                   cut))
        .errors;
  };
  EXPECT_THAT(
      train("fc1", {"--cut", "fc1"}),
      HasSubstr("2 stages x 1 replica: conv1 conv2, 18816 parameters (150528 bytes) | "
                "fc1 fc2, 1181066 parameters (9448528 bytes)"));
  EXPECT_THAT(
      train("conv2", {"--cut", "conv2"}),
      HasSubstr("conv1, 320 parameters (2560 bytes) | conv2 fc1 fc2, "));
  EXPECT_THAT(
      train("memory", {"--balance", "memory"}),
      HasSubstr("conv1 conv2, 18816 parameters"));
  EXPECT_EQ(hash_of(scratch / "conv2"), hash_of(scratch / "fc1"));
}

TEST(PipelineRecipes, ModelParallelSavesAWholeModel) {
  const Scratch scratch;
  const auto out = scratch / "run";
  train_recipe("model-parallel", out);
  const auto evaluated = run_ok(
      {"eval", "--checkpoint", out + "/checkpoints/step-00000010", "--limit", "640"});
  EXPECT_THAT(
      evaluated.output,
      HasSubstr(
          "Accuracy: " +
          std::to_string(static_cast<int>(
              6.4 * json_number(out + "/summary.json", "test_accuracy") + 0.5)) +
          "/640"));
}

TEST(PipelineRecipes, HybridTrainsOnTwoByTwoRanks) {
  const Scratch scratch;
  const auto processes = train_recipe("hybrid", scratch / "processes");
  const auto threads =
      train_recipe("hybrid", scratch / "threads", {"--rank-type", "thread"});
  EXPECT_EQ(processes, threads);
  EXPECT_EQ(json_number(scratch / "threads/summary.json", "world_size"), 4);
}

}  // namespace tandem::pipeline_test
