// Choices of "auto" in a run, and where the run reports them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/base/files.h"
#include "tandem/kernels/isa.h"
#include "tandem/train/agreement/precision.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::auto_choices_test {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

std::string first_line_of(const RunConfig& config, int ranks) {
  const DatasetSplits data{noise_images(64), noise_images(10)};
  testing::internal::CaptureStdout();
  train_on_threads(ranks, config, data);
  const auto output = testing::internal::GetCapturedStdout();
  return output.substr(0, output.find('\n'));
}

RunConfig small_config(int ranks) {
  return thread_config(ModelKind::simplenet, ranks);
}

TEST(AutoChoices, AreInTheFirstLine) {
  auto config = small_config(3);
  EXPECT_THAT(
      first_line_of(config, 3),
      EndsWith(
          "data_parallel, 3 ranks over thread, executor compiled, fp32, shard none"));
  config.strategy.shard = Sharding::optimizer;
  config.exec.precision = Precision::fp64;
  // With a start_line, the line of choices comes first.
  config.output.start_line = "Training started...";
  EXPECT_THAT(
      first_line_of(config, 3), EndsWith("executor eager, fp64, shard optimizer"));
  // Strategies without that choice do not report it.
  config = small_config(2);
  config.strategy.kind = StrategyKind::averaging;
  EXPECT_THAT(
      first_line_of(config, 2),
      EndsWith("averaging, 2 ranks over thread, executor compiled, fp32"));
}

// config.toml keeps `auto` except for the precision, so a run that resumes on other
// hosts chooses again.
TEST(AutoChoices, ConfigAndSummaryRecordTheChoices) {
  const Scratch scratch;
  auto config = small_config(3);
  config.exec.precision = Precision::automatic;
  config.output.out = scratch / "run";
  const std::string precision = has_bf16() ? "bf16" : "fp32";
  EXPECT_THAT(first_line_of(config, 3), HasSubstr(", " + precision + ", "));
  expect_parts(
      read_file(config.output.out + "/config.toml"),
      {"\nprecision = \"" + precision + "\"\n", "\nbackend = \"auto\"\n",
       "\nshard = \"auto\"\n", "\nexecutor = \"auto\"\n", "\ndevice = \"auto\"\n"});
  expect_parts(
      read_file(config.output.out + "/summary.json"),
      {"\"precision\": \"" + precision + "\"", "\"executor\": \"compiled\"",
       "\"backend\": \"thread\"", "\"shard\": \"none\""});
}

// Returns the precision of ranks whose CPUs compute in bfloat16 or not.
Precision settled(const RunConfig& config, const std::vector<bool>& has_bf16) {
  const auto all = on_each_rank(
      "thread", static_cast<int>(has_bf16.size()), [&](Communicator& comm) {
        return settle_precision(
            config, {}, comm, has_bf16[static_cast<size_t>(comm.rank())]);
      });
  EXPECT_THAT(all, testing::Each(all[0]));
  return all[0];
}

TEST(AutoPrecision, IsBf16OnlyIfAllCpusComputeInBf16) {
  RunConfig config;
  config.exec.precision = Precision::automatic;
  testing::internal::CaptureStderr();
  EXPECT_EQ(settled(config, {true}), Precision::bf16);
  EXPECT_EQ(settled(config, {true, true, true}), Precision::bf16);
  EXPECT_EQ(settled(config, {false}), Precision::fp32);
  EXPECT_EQ(settled(config, {true, true, false, true}), Precision::fp32);
  for (const auto asked : {Precision::fp32, Precision::fp64}) {
    config.exec.precision = asked;
    EXPECT_EQ(settled(config, {true, false, true}), asked);
  }
  config.exec.precision = Precision::bf16;
  EXPECT_EQ(settled(config, {true, true, true}), Precision::bf16);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST(AutoPrecision, Bf16WithoutHardwareWarnsOfTheCost) {
  RunConfig config;
  config.exec.precision = Precision::bf16;
  testing::internal::CaptureStderr();
  EXPECT_EQ(settled(config, {true, true, false}), Precision::bf16);
  expect_parts(
      testing::internal::GetCapturedStderr(),
      {"the CPU of rank 2, which does not compute in bfloat16",
       "up to 1.3 times as long", "use --precision fp32, or auto"});
}

TEST(AutoPrecision, AResumedRunKeepsItsPrecision) {
  const Scratch scratch;
  for (const auto before : {Precision::bf16, Precision::fp32}) {
    auto config = small_config(3);
    config.exec.precision = before;
    config.output.out = scratch / name_of(before);
    first_line_of(config, 3);
    config.exec.precision = Precision::automatic;
    const bool other = before == Precision::fp32;
    config.output.resume = "auto";
    EXPECT_EQ(settled(config, {other, other, other}), before);
    config.output.resume = config.output.out + "/checkpoints/step-00000003";
    config.output.out = scratch / "elsewhere";
    EXPECT_EQ(settled(config, {other, other, other}), before);
  }
  // Without a run to resume.
  auto config = small_config(3);
  config.exec.precision = Precision::automatic;
  config.output.out = scratch / "new";
  config.output.resume = "auto";
  EXPECT_EQ(settled(config, {true, true, true}), Precision::bf16);
  EXPECT_EQ(settled(config, {true, false, true}), Precision::fp32);
}

}  // namespace tandem::auto_choices_test
