// What "auto" stands for in a run, and where a run says so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/kernels/isa.h"
#include "tandem/train/agreement/precision.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/data/scratch.h"
#include "tests/parallel/replica.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string first_line_of(const RunConfig& config, int ranks) {
  const DatasetSplits data{noise_images(64), noise_images(10)};
  testing::internal::CaptureStdout();
  on_each_rank("thread", ranks, [&](Communicator& comm) {
    return train(config, data, comm).steps;
  });
  const auto output = testing::internal::GetCapturedStdout();
  return output.substr(0, output.find('\n'));
}

RunConfig small_config(int ranks) {
  RunConfig config;
  config.model = "simplenet";
  config.batch_size = 8;
  config.optimizer = "sgd";
  config.ranks = "thread";
  config.nproc = std::to_string(ranks);
  return config;
}

TEST(AutoChoices, TheFirstLineNamesThem) {
  auto config = small_config(3);
  EXPECT_THAT(
      first_line_of(config, 3),
      EndsWith("data_parallel, 3 ranks over thread, executor onednn, fp32, optimizer "
               "state replicated"));
  config.optimizer_state = "sharded";
  config.precision = "fp64";
  // Where a recipe has a first line of its own it comes after.
  config.start_line = "Training started...";
  EXPECT_THAT(
      first_line_of(config, 3),
      EndsWith("executor eager, fp64, optimizer state sharded"));
  // Others keep the state as they must.
  config = small_config(2);
  config.strategy = "averaging";
  EXPECT_THAT(
      first_line_of(config, 2),
      EndsWith("averaging, 2 ranks over thread, executor onednn, fp32"));
}

TEST(AutoChoices, ConfigAndSummaryHoldWhatTheyBecame) {
  const Scratch scratch;
  auto config = small_config(3);
  config.precision = "auto";
  config.out = scratch / "run";
  const std::string precision = has_bf16() ? "bf16" : "fp32";
  EXPECT_THAT(first_line_of(config, 3), HasSubstr(", " + precision + ", "));
  EXPECT_THAT(
      read_file(config.out + "/config.toml"),
      HasSubstr("\nprecision = \"" + precision + "\"\n"));
  EXPECT_THAT(
      read_file(config.out + "/summary.json"),
      AllOf(
          HasSubstr("\"precision\": \"" + precision + "\""),
          HasSubstr("\"executor\": \"onednn\""), HasSubstr("\"backend\": \"thread\""),
          HasSubstr("\"optimizer_state\": \"replicated\"")));
}

// As settled by ranks whose CPUs compute in bfloat16, or do not.
std::string settled(const RunConfig& config, const std::vector<bool>& has_bf16) {
  const auto all = on_each_rank(
      "thread", static_cast<int>(has_bf16.size()), [&](Communicator& comm) {
        return settle_precision(
            config, comm, has_bf16[static_cast<size_t>(comm.rank())]);
      });
  EXPECT_THAT(all, testing::Each(all[0]));
  return all[0];
}

TEST(AutoPrecision, IsBf16OnlyWhereAllCpusComputeInIt) {
  RunConfig config;
  config.precision = "auto";
  testing::internal::CaptureStderr();
  EXPECT_EQ(settled(config, {true}), "bf16");
  EXPECT_EQ(settled(config, {true, true, true}), "bf16");
  EXPECT_EQ(settled(config, {false}), "fp32");
  EXPECT_EQ(settled(config, {true, true, false, true}), "fp32");
  for (const std::string asked : {"fp32", "fp64"}) {
    config.precision = asked;
    EXPECT_EQ(settled(config, {true, false, true}), asked);
  }
  config.precision = "bf16";
  EXPECT_EQ(settled(config, {true, true, true}), "bf16");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST(AutoPrecision, WhoAsksForBf16WithoutItIsToldThePriceAndTheWayOut) {
  RunConfig config;
  config.precision = "bf16";
  testing::internal::CaptureStderr();
  EXPECT_EQ(settled(config, {true, true, false}), "bf16");
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(
          HasSubstr("the CPU of rank 2 does not compute in bfloat16"),
          HasSubstr("times as long as in fp32"),
          HasSubstr("use --precision fp32, or auto")));
}

TEST(AutoPrecision, ARunThatGoesOnKeepsItsOwn) {
  const Scratch scratch;
  for (const std::string before : {"bf16", "fp32"}) {
    auto config = small_config(3);
    config.precision = before;
    config.out = scratch / before;
    first_line_of(config, 3);
    config.precision = "auto";
    const bool other = before == "fp32";
    config.resume = "auto";
    EXPECT_EQ(settled(config, {other, other, other}), before);
    config.resume = config.out + "/checkpoints/step-00000003";
    config.out = scratch / "elsewhere";
    EXPECT_EQ(settled(config, {other, other, other}), before);
  }
  // Nothing to go on from.
  auto config = small_config(3);
  config.precision = "auto";
  config.out = scratch / "new";
  config.resume = "auto";
  EXPECT_EQ(settled(config, {true, true, true}), "bf16");
  EXPECT_EQ(settled(config, {true, false, true}), "fp32");
}

}  // namespace
}  // namespace tandem
