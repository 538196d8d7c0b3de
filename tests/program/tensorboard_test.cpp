// Event files of --tensorboard, read by TensorBoard itself, which `scripts/setup
// --torchrun` installs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parity/python.h"
#include "tests/program/resume/resumed_run.h"

namespace tandem::tensorboard_test {

using testing::HasSubstr;
using testing::SizeIs;

class Tensorboard : public testing::Test {
 protected:
  void SetUp() override {
    if (!python_has("tensorboard", newest_python())) {
      GTEST_SKIP() << "no tensorboard of PyPI; scripts/setup --torchrun, then "
                      "scripts/test -R Tensorboard";
    }
  }

  void train(const Arguments& arguments) const {
    run_ok(with(arguments, {"--tensorboard"}));
  }

  // Compares all values with metrics.jsonl. Returns the tags, each with its number of
  // values.
  std::string tags() const {
    const auto result = checked(run_python(
        {source_dir() + "/tests/program/compare_events.py", run_}, newest_python()));
    return result.output;
  }

  const Scratch scratch_;
  const std::string run_ = scratch_ / "run";
};

TEST_F(Tensorboard, HasTheNumbersOfMetrics) {
  for (const char* ranks : {"1", "3"}) {
    SCOPED_TRACE(ranks);
    remove_all(run_);
    train(
        {"train", "--model", "simplenet", "--limit", "640", "--validation", "0.1",
         "--epochs", "2", "--log-every", "2", "--nproc", ranks, "--out", run_});
    if (HasFatalFailure()) {
      return;
    }
    // 576 samples are 9 steps of one rank, or 3 steps of three ranks.
    const std::string lines = std::string(ranks) == "1" ? " 10\n" : " 4\n";
    const auto found = tags();
    for (const char* tag :
         {"train/loss", "train/accuracy", "train/lr", "train/gradient_norm",
          "train/samples_per_second", "train/exposed_comm_ms_per_step",
          "train/process_peak_memory_mib", "train/epoch", "train/samples",
          "train/seconds"}) {
      EXPECT_THAT(found, HasSubstr(tag + lines));
    }
    expect_parts(
        found, {"test/loss 1\n", "test/accuracy 1\n", "validation/loss 2\n",
                "validation/accuracy 2\n"});
  }
}

// The run is resumed from step 15 of 33, and then from step 25.
TEST_F(Tensorboard, ShowsEachStepOnceAfterResumes) {
  const auto arguments =
      with(trained(run_), kThreeRanks, {"--checkpoint-every", "5"}, kKeepAll);
  train(arguments);
  const auto before = tags();
  EXPECT_THAT(before, HasSubstr("train/loss 9\n"));
  for (const int64_t step : {15, 25}) {
    train(with(arguments, {"--resume", checkpoint(run_, step)}));
    EXPECT_EQ(tags(), before);
  }
  EXPECT_THAT(list_directory(run_ + "/tensorboard"), SizeIs(3));
}

}  // namespace tandem::tensorboard_test
