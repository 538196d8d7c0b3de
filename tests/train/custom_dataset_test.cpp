// Runs on a data set that the program defines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/train/evaluation.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::custom_dataset_test {

using testing::HasSubstr;

RunConfig config_of(const std::string& out = "") {
  RunConfig config = thread_config(ModelKind::simplenet, 1);
  config.output.out = out;
  return config;
}

DatasetSplits faces() {
  DatasetSplits data{noise_images(64), noise_images(40)};
  data.train.name = data.test.name = "faces";
  return data;
}

Summary train_alone(const RunConfig& config, const DatasetSplits& data) {
  return train(config, data, *make_single_communicator());
}

TEST(CustomDataset, LimitAppliesToBothParts) {
  auto config = config_of();
  config.data.limit = 16;
  auto data = faces();
  // The hashes are of all samples and differ from those of the first 16.
  data.train.hashes = {"images", "labels"};
  const auto summary = train_alone(config, data);
  EXPECT_EQ(summary.steps, 2);
  EXPECT_EQ(summary.test.count, 16);
  data = {first_samples(faces().train, 16), first_samples(faces().test, 16)};
  EXPECT_EQ(summary.parameters_sha256, train_alone(config, data).parameters_sha256);
}

TEST(CustomDataset, IsRecordedByNameAndEvaluatesItsRun) {
  const Scratch scratch;
  const std::string run = scratch / "run";
  const auto summary = train_alone(config_of(run), faces());
  EXPECT_THAT(
      read_file(run + "/config.toml"), HasSubstr("\ndata = \"custom:faces\"\n"));
  EXPECT_THAT(
      read_file(run + "/summary.json"), HasSubstr("\"data\": \"custom:faces\""));
  const auto checkpoint = newest_checkpoint(run + "/checkpoints");
  EXPECT_EQ(load_model_state(checkpoint, nullptr).at("data"), "custom:faces");

  expect_error<ConfigError>(
      [&] { return evaluate_checkpoint(checkpoint); },
      {"data is the custom data set 'faces' of another program, expected",
       "evaluate_checkpoint()", "--data"});
  CheckpointEvaluation options;
  options.dataset = faces().test;
  const auto all = evaluate_checkpoint(checkpoint, options);
  EXPECT_EQ(all.correct, summary.test.correct);
  EXPECT_EQ(all.count, 40);
  // The classes are those of the run, even if the samples lack some.
  options.dataset->num_classes = 3;
  options.limit = 10;
  EXPECT_EQ(evaluate_checkpoint(checkpoint, options).count, 10);
}

TEST(CustomDataset, ResumesItsRun) {
  const Scratch scratch;
  auto config = config_of(scratch / "run");
  train_alone(config, faces());
  config.output.resume = "auto";
  config.training.epochs = 2;
  EXPECT_EQ(train_alone(config, faces()).steps, 16);
}

// Otherwise, the best test would be chosen from other samples.
TEST(CustomDataset, ResumesOnlyWithAllItsParts) {
  const Scratch scratch;
  auto with_validation = faces();
  with_validation.validation = noise_images(24);
  const auto error_of_resume = [](const std::string& out, const DatasetSplits& first,
                                  const DatasetSplits& then) {
    auto config = config_of(out);
    train_alone(config, first);
    config.output.resume = "auto";
    config.training.epochs = 2;
    return error_of<ConfigError>([&] { train_alone(config, then); });
  };
  expect_parts(
      error_of_resume(scratch / "more", with_validation, faces()),
      {"the validation images, validation labels that '", "/more/checkpoints/step-",
       "was trained with are missing", "--data"});
  expect_parts(
      error_of_resume(scratch / "less", faces(), with_validation),
      {"the validation images, validation labels are not those that '"});
}

TEST(CustomDataset, HasNoNameByDefaultUnlessItWasLoaded) {
  EXPECT_EQ(recorded_name(Dataset()), "custom:unnamed");
  EXPECT_EQ(recorded_name(load_dataset("digits", 8).train), "digits");
}

}  // namespace tandem::custom_dataset_test
