// Checkpoints that `tandem eval` refuses. tests/checkpoint has further ones.

#include "tandem/train/evaluation.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/comm/communicator.h"
#include "tandem/data/load_dataset.h"
#include "tandem/train/checkpoint_model.h"
#include "tandem/train/trainer.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"
#include "tests/scratch.h"

namespace tandem::evaluation_test {

using testing::HasSubstr;

TEST(EvaluateCheckpoint, RefusesPathsWithoutACheckpoint) {
  const Scratch scratch;
  make_directories(scratch / "empty");
  replace_file(scratch / "text", "hello, this is no checkpoint");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"missing", "check the path"},
      {"empty",
       "no model.safetensors; name a directory such as RUN/checkpoints/step-N"},
      {"text", "safetensors"}};
  for (const auto& [name, says] : cases) {
    const std::string path = scratch / name;
    expect_error<DataError>([&] { return evaluate_checkpoint(path); }, {path, says});
  }
}

TEST(EvaluateCheckpoint, NamesTheModelNearestToAnUnknownModel) {
  const Scratch scratch;
  CheckpointContent content;
  content.state.model = {{"fc.weight", at::zeros({10, 784})}};
  content.description = {{"model", "simplenot"}, {"data", "digits"}};
  const auto path = save_checkpoint(scratch.path(), content, {});
  expect_error<ConfigError>(
      [&] { return evaluate_checkpoint(path); }, {"simplenot", "'simplenet'"});
}

// A run on the files of the relative path "data", with a limit of its samples.
class RunOnFiles : public testing::Test {
 protected:
  RunOnFiles() {
    make_directories(scratch_ / "data");
    write(0);
    std::filesystem::current_path(scratch_.path());
    RunConfig config;
    config.model.kind = ModelKind::simplenet;
    config.data.source = "data";
    config.data.limit = 30;
    config.data.validation = 0.2;
    config.training.epochs = 1;
    config.output.out = scratch_ / "run";
    config.optimizer.lr = 0.001;
    (void)train(config, load_dataset(DataRequest(config)), *make_single_communicator());
    std::filesystem::current_path("/");
  }
  ~RunOnFiles() override {
    std::filesystem::current_path(before_);
  }

  // Writes 50 samples for training and 40 for the test, with `first` as first number of
  // the test part.
  void write(double first) const {
    for (const auto& [part, size] :
         {std::pair<std::string, int64_t>{"train", 50}, {"test", 40}}) {
      const std::string path = scratch_ / ("data/" + part);
      const bool is_test = part == "test";
      write_npy(path + "_x.npy", make_samples<float>({3}, size, [&](int64_t i) {
                  return i == 0 && is_test ? first : static_cast<double>(i % 7);
                }));
      write_npy(path + "_y.npy", make_samples<int64_t>({}, size, [](int64_t i) {
                  return i % 5;
                }));
    }
  }

  CheckpointEvaluation options(DataPart part) const {
    CheckpointEvaluation options;
    options.part = part;
    return options;
  }

  const Scratch scratch_;
  const std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(RunOnFiles, IsEvaluatedOnTheFilesOfTheTrainingFromAnyFolder) {
  const std::string run = scratch_ / "run";
  EXPECT_THAT(
      read_file(run + "/config.toml"),
      HasSubstr("data = \"" + (scratch_ / "data") + "\""));
  EXPECT_EQ(evaluate_checkpoint(run, options(DataPart::test)).count, 40);
  EXPECT_EQ(evaluate_checkpoint(run, options(DataPart::train)).count, 24);
  EXPECT_EQ(evaluate_checkpoint(run, options(DataPart::validation)).count, 6);
}

TEST_F(RunOnFiles, IsNotEvaluatedOnChangedFilesUnlessDataNamesThem) {
  const std::string run = scratch_ / "run";
  write(1);
  expect_error<ConfigError>(
      [&] { return evaluate_checkpoint(run, options(DataPart::test)); },
      {"the test inputs of '" + (scratch_ / "data") + "' have the SHA-256",
       "their SHA-256 in the training", "--data"});
  EXPECT_EQ(evaluate_checkpoint(run, options(DataPart::train)).count, 24);
  auto named = options(DataPart::test);
  named.data = scratch_ / "data";
  EXPECT_EQ(evaluate_checkpoint(run, named).count, 40);
}

// Each save removes the checkpoint before.
TEST_F(RunOnFiles, IsEvaluatedWhileItSaves) {
  const std::string run = scratch_ / "run";
  auto content = read_checkpoint(
      newest_checkpoint(run + "/checkpoints"), *make_single_communicator());
  std::atomic<bool> ends{false};
  std::thread saving([&] {
    while (!ends) {
      ++content.position.step;
      content.best = {0.5, content.position.step, 0};
      save_checkpoint(run + "/checkpoints", content, {1, true});
    }
  });
  for (int i = 0; i < 10; ++i) {
    EXPECT_NO_THROW(
        EXPECT_EQ(evaluate_checkpoint(run, options(DataPart::test)).count, 40));
    EXPECT_NO_THROW((void)load_checkpoint_model(run));
    EXPECT_NO_THROW((void)best_checkpoint(run));
  }
  ends = true;
  saving.join();
}

}  // namespace tandem::evaluation_test
