#include "tandem/train/run_checkpoints.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"
#include "tests/train/printed.h"

namespace tandem::saving_test {

using testing::HasSubstr;

// A model with an unused parameter that becomes NaN after some calls.
std::unique_ptr<Model> model_that_loses_a_parameter(int64_t at_call) {
  auto weight = at::full({64, 5}, 0.01).set_requires_grad(true);
  auto lost = at::zeros({3}).set_requires_grad(true);
  auto calls = std::make_shared<int64_t>(0);
  return make_function_model(
      [=](const at::Tensor& x) mutable {
        if (++*calls == at_call) {
          lost.detach().fill_(std::nan(""));
        }
        return x.flatten(1).matmul(weight);
      },
      {{"weight", weight}, {"lost", lost}});
}

// A later save cannot fix such values.
TEST(OnSaveError, ValuesThatAreNotFiniteEndTheRunDespiteWarn) {
  for (const auto on_error : {OnSaveError::stop, OnSaveError::warn}) {
    const Scratch scratch;
    RunConfig config = small_config();
    config.model.kind = ModelKind::custom;
    config.ranks.nproc = 1;
    config.output.out = scratch / "run";
    config.output.checkpoint_every = 2;
    config.output.on_save_error = on_error;
    const DatasetSplits data{noise_images(64), noise_images(10)};
    const auto comm = make_single_communicator();
    testing::internal::CaptureStdout();
    const auto error = error_of<DataError>(
        [&] { train(config, data, *comm, model_that_loses_a_parameter(3)); });
    testing::internal::GetCapturedStdout();
    EXPECT_THAT(error, HasSubstr("'lost' has values that are not finite"));
    EXPECT_EQ(
        list_directory(scratch / "run/checkpoints"),
        std::vector<std::string>{"step-00000002"});
  }
}

// Renames the run's folder after the first checkpoint.
class Renames : public Observer {
 public:
  explicit Renames(std::string out) : out_(std::move(out)) {}
  void on_checkpoint(const std::string& /*path*/) override {
    std::filesystem::rename(out_, out_ + "-old");
  }

 private:
  std::string out_;
};

TEST(OnSaveError, ALostFolderEndsTheRunDespiteWarn) {
  const Scratch scratch;
  RunConfig config = small_config();
  config.ranks.nproc = 1;
  config.output.out = scratch / "run";
  config.output.checkpoint_every = 2;
  config.output.on_save_error = OnSaveError::warn;
  const DatasetSplits data{noise_images(64), noise_images(10)};
  const auto comm = make_single_communicator();
  Renames observer(config.output.out);
  CustomParts own;
  own.observer = &observer;
  testing::internal::CaptureStdout();
  const auto error =
      error_of<FolderLost>([&] { train(config, data, *comm, std::move(own)); });
  testing::internal::GetCapturedStdout();
  EXPECT_THAT(error, HasSubstr("/run' was removed or renamed"));
  EXPECT_EQ(list_directory(scratch.path()), std::vector<std::string>{"run-old"});
}

TEST(Resume, AcceptsEverySpellingOfAPath) {
  const Scratch scratch;
  RunConfig config = small_config();
  config.output.out = scratch / "run";
  config.output.keep_checkpoints = 0;
  config.output.checkpoint_every = 2;
  run(config);
  const auto folder = std::filesystem::current_path();
  std::filesystem::current_path(scratch / "run/checkpoints/step-00000002");
  config.output.resume = ".";
  config.output.out = scratch / "run/../run//";
  testing::internal::CaptureStderr();
  run(config);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("at step 2"));
  std::filesystem::current_path(folder);
}

TEST(SavePauses, AreInTheSummaryOfARunThatSaves) {
  for (const bool saves : {false, true}) {
    const Scratch scratch;
    RunConfig config = small_config();
    config.output.out = saves ? scratch / "run" : "";
    const double pause = run(config).summary.longest_save_pause_ms;
    EXPECT_EQ(pause > 0, saves);
    if (saves) {
      EXPECT_THAT(
          read_file(scratch / "run/summary.json"), HasSubstr("longest_save_pause_ms"));
    }
  }
}

}  // namespace tandem::saving_test
