// Runs that end before their last epoch: early stopping, and the program's observer.

#include "tandem/train/agreement/run_end.h"
#include "tandem/data/load_dataset.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/train/evaluation.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"
#include "tests/train/printed.h"

namespace tandem::run_end_test {

using testing::ElementsAre;
using testing::HasSubstr;

// The test images are training images, but three have another label. The test loss
// falls at first and rises when the model overfits.
const DatasetSplits& noise() {
  static const DatasetSplits data = [] {
    DatasetSplits splits{noise_images(64), noise_images(10)};
    std::vector<uint8_t> labels;
    for (size_t i = 0; i < 10; ++i) {
      const int other = i % 3 == 2 ? 1 : 0;
      labels.push_back(
          static_cast<uint8_t>((splits.test.targets.bytes[i] + other) % 5));
    }
    splits.test.targets.bytes = labels;
    return splits;
  }();
  return data;
}

RunConfig overfitting(int ranks, const std::string& out) {
  RunConfig config = small_config();
  config.ranks.nproc = ranks;
  config.optimizer.lr = 0.2;
  config.training.epochs = 200;
  config.training.patience = 3;
  config.output.out = out;
  config.output.keep_checkpoints = 2;
  config.output.keep_best = !out.empty();
  return config;
}

class Losses : public Observer {
 public:
  std::vector<double> of_tests;

  Next on_evaluation(const TestReport& test) override {
    of_tests.push_back(test.loss);
    return Next::proceed;
  }
};

struct Watched {
  Summary summary;
  std::vector<double> losses;
  std::string output;
};

Watched overfit(const RunConfig& config) {
  Watched result;
  testing::internal::CaptureStdout();
  run_ranks(config.num_ranks_here(), [&](Communicator& comm) {
    Losses losses;
    CustomParts own;
    own.observer = &losses;
    const auto summary = train(config, noise(), comm, std::move(own));
    if (comm.rank() == 0) {
      result.summary = summary;
      result.losses = losses.of_tests;
    }
  });
  result.output = testing::internal::GetCapturedStdout();
  return result;
}

TEST(Patience, EndsTheRunAfterEvaluationsWithoutALowerTestLoss) {
  for (const int ranks : {1, 3}) {
    const auto result = overfit(overfitting(ranks, ""));
    const auto lowest = std::min_element(result.losses.begin(), result.losses.end());
    EXPECT_EQ(result.summary.ended_by, "patience");
    EXPECT_GT(result.summary.epochs, 4) << "it never fell";
    EXPECT_EQ(static_cast<int64_t>(result.losses.size()), result.summary.epochs);
    EXPECT_EQ(result.losses.end() - lowest, 1 + 3);
    EXPECT_EQ(result.summary.best_test_loss, *lowest);
    EXPECT_THAT(result.output, HasSubstr("no test loss in 3 evaluations was below"));
  }
}

TEST(Patience, KeepsTheBestAndTheNewestCheckpoint) {
  const Scratch scratch;
  const auto summary = overfit(overfitting(2, scratch / "run")).summary;
  const std::string checkpoints = scratch / "run/checkpoints";
  const auto kept = checkpoints_in(checkpoints);
  EXPECT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept.begin()->first, summary.best_test_step);
  EXPECT_EQ(
      std::filesystem::read_symlink(checkpoints + "/best"),
      std::filesystem::path(kept.begin()->second).filename());
}

TEST(Patience, SurvivesAResume) {
  const Scratch scratch;
  const auto whole = overfit(overfitting(3, scratch / "whole")).summary;
  auto config = overfitting(3, scratch / "parts");
  config.training.epochs = whole.epochs - 1;
  EXPECT_EQ(overfit(config).summary.ended_by, "epochs");
  config.training.epochs = 200;
  config.output.resume = "auto";
  const auto resumed = overfit(config).summary;
  EXPECT_EQ(resumed.ended_by, "patience");
  EXPECT_EQ(resumed.epochs, whole.epochs);
  EXPECT_EQ(resumed.best_test_step, whole.best_test_step);
  EXPECT_EQ(resumed.parameters_sha256, whole.parameters_sha256);
}

TEST(Patience, AnEndedRunPrintsHowToContinue) {
  const Scratch scratch;
  auto config = overfitting(2, scratch / "run");
  overfit(config);
  config.output.resume = "auto";
  EXPECT_THAT(
      overfit(config).output,
      HasSubstr("raise --patience, or set it to 0, to continue"));
  config.training.patience = 0;
  config.training.epochs = 60;
  EXPECT_EQ(overfit(config).summary.epochs, 60);
}

TEST(Patience, RanksAverageWhenAnEvaluationEndsTheRun) {
  const Scratch scratch;
  auto config = overfitting(2, scratch / "run");
  config.strategy.kind = StrategyKind::averaging;
  config.strategy.average_every = StrategyOptions::kAtTheEnd;
  const auto hashes = on_each_rank("thread", 2, [&](Communicator& comm) {
    const auto summary = train(config, noise(), comm);
    TANDEM_CHECK(summary.ended_by == "patience", summary.ended_by);
    return summary.parameters_sha256;
  });
  EXPECT_EQ(hashes[0], hashes[1]);
}

// Records its calls, and stops the run at a given call.
class Watcher : public Observer {
 public:
  std::vector<std::string> heard;
  double samples = 0;
  int64_t stop_at_step = -1;
  int64_t stop_at_epoch = -1;
  int64_t stop_at_evaluation = -1;
  std::string fails_at;

  Next on_step(const StepReport& step) override {
    samples += step.sums.values().samples;
    return hear("step", step.step, stop_at_step);
  }
  Next on_epoch(const EpochReport& epoch) override {
    return hear("epoch", epoch.epoch, stop_at_epoch);
  }
  Next on_evaluation(const TestReport& test) override {
    return hear("evaluation", test.epoch, stop_at_evaluation);
  }
  void on_checkpoint(const std::string& path) override {
    heard.push_back("saved " + path.substr(path.rfind('/') + 1));
  }

 private:
  Next hear(const std::string& what, int64_t at, int64_t stop_at) {
    heard.push_back(what + " " + std::to_string(at));
    if (what == fails_at) {
      throw std::runtime_error("the observer has had enough");
    }
    return at == stop_at ? Next::stop : Next::proceed;
  }
};

Summary watched(const RunConfig& config, Communicator& comm, Watcher& watcher) {
  CustomParts own;
  own.observer = &watcher;
  return train(config, noise(), comm, std::move(own));
}

RunConfig of_two_epochs(int ranks, const std::string& out = "") {
  RunConfig config = small_config();
  config.ranks.nproc = ranks;
  config.training.batch_size = 16;
  config.training.epochs = 2;
  config.output.out = out;
  config.output.log_line = "off";
  config.output.test_line = "off";
  return config;
}

TEST(Observer, GetsAllCallsInOrder) {
  const Scratch scratch;
  auto heard = on_each_rank("thread", 2, [&](Communicator& comm) {
    Watcher watcher;
    watched(of_two_epochs(2, scratch / "run"), comm, watcher);
    TANDEM_CHECK(watcher.samples == 64, std::to_string(watcher.samples));
    return watcher.heard;
  });
  // A checkpoint is written during the next steps, so its call comes after a step. The
  // next save waits for it.
  const auto saved = std::find(heard[0].begin(), heard[0].end(), "saved step-00000002");
  const auto at = saved - heard[0].begin();
  EXPECT_GT(at, 3);
  EXPECT_LT(at, 8);
  if (saved != heard[0].end()) {
    heard[0].erase(saved);
  }
  EXPECT_THAT(
      heard[0], ElementsAre(
                    "step 1", "step 2", "epoch 0", "evaluation 0", "step 3", "step 4",
                    "epoch 1", "evaluation 1", "saved step-00000004"));
  EXPECT_THAT(
      heard[1], ElementsAre(
                    "step 1", "step 2", "epoch 0", "evaluation 0", "step 3", "step 4",
                    "epoch 1", "evaluation 1"));
}

TEST(Observer, StopOnOneRankStopsAllRanks) {
  for (const char* strategy : {"data_parallel", "averaging", "parameter_server"}) {
    SCOPED_TRACE(strategy);
    const auto ends = on_each_rank("thread", 3, [&](Communicator& comm) {
      Watcher watcher;
      RunConfig config = of_two_epochs(3);
      config.training.epochs = 5;
      config.strategy.kind = *find_choice<StrategyKind>(strategy);
      watcher.stop_at_epoch = comm.rank() == 1 ? 2 : -1;
      const auto summary = watched(config, comm, watcher);
      TANDEM_CHECK(summary.ended_by == "observer", summary.ended_by);
      TANDEM_CHECK(watcher.heard.back() == "evaluation 2", watcher.heard.back());
      return summary.epochs;
    });
    EXPECT_THAT(ends, ElementsAre(3, 3, 3));
  }
}

// The resumed run has the same bits as a run that was not stopped.
TEST(Observer, AStopInTheMiddleOfAnEpochCanBeResumed) {
  const Scratch scratch;
  const auto train_to = [&](const std::string& out, int64_t stop_at, bool resume) {
    const auto summaries = on_each_rank("thread", 3, [&](Communicator& comm) {
      Watcher watcher;
      watcher.stop_at_step = comm.rank() == 2 ? stop_at : -1;
      RunConfig config = of_two_epochs(3, scratch / out);
      config.training.batch_size = 2;
      config.output.log_every = 1;
      config.output.log_line = "";
      config.output.resume = resume ? "auto" : "";
      return watched(config, comm, watcher);
    });
    return summaries[0];
  };
  testing::internal::CaptureStdout();
  const auto whole = train_to("whole", -1, false);
  const auto stopped = train_to("parts", 5, false);
  const auto resumed = train_to("parts", -1, true);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(whole.ended_by, "epochs");
  EXPECT_EQ(stopped.ended_by, "observer");
  EXPECT_EQ(stopped.steps, 5);
  EXPECT_EQ(stopped.epochs, 0);
  EXPECT_GT(stopped.test.count, 0);
  EXPECT_EQ(resumed.steps, whole.steps);
  EXPECT_EQ(resumed.parameters_sha256, whole.parameters_sha256);
}

// A checkpoint has the sums of the interrupted epoch, so its report covers the whole
// epoch.
TEST(Observer, AnInterruptedEpochIsReportedWhole) {
  const Scratch scratch;
  const auto comm = make_single_communicator();
  class Epochs : public Watcher {
   public:
    std::vector<double> losses;
    Next on_epoch(const EpochReport& epoch) override {
      losses.push_back(epoch.loss);
      return Next::proceed;
    }
  };
  const auto train_to = [&](const std::string& out, int64_t stop_at, bool resume) {
    Epochs watcher;
    watcher.stop_at_step = stop_at;
    RunConfig config = of_two_epochs(1, scratch / out);
    config.training.min_delta = 1e-9;
    config.training.epochs = 1;
    config.output.log_every = 1;
    config.output.resume = resume ? "auto" : "";
    watched(config, *comm, watcher);
    return watcher.losses;
  };
  testing::internal::CaptureStdout();
  const auto whole = train_to("whole", -1, false);
  train_to("parts", 2, false);
  const auto resumed = train_to("parts", -1, true);
  testing::internal::GetCapturedStdout();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(resumed, whole);
}

TEST(Observer, AStopAtAnEvaluationEndsTheRunAtOnce) {
  const auto comm = make_single_communicator();
  Watcher watcher;
  watcher.stop_at_evaluation = 0;
  EXPECT_EQ(watched(of_two_epochs(1), *comm, watcher).epochs, 1);
}

TEST(Observer, ItsExceptionLeavesTrain) {
  for (const char* where : {"step", "epoch", "evaluation"}) {
    const auto comm = make_single_communicator();
    Watcher watcher;
    watcher.fails_at = where;
    EXPECT_THROW(watched(of_two_epochs(1), *comm, watcher), std::runtime_error);
  }
}

TEST(Observer, AllRanksHaveOneOrNone) {
  const auto errors = on_each_rank("thread", 2, [](Communicator& comm) {
    Watcher watcher;
    CustomParts own;
    own.observer = comm.rank() == 0 ? &watcher : nullptr;
    return error_of<ConfigError>(
        [&] { train(of_two_epochs(2), noise(), comm, std::move(own)); });
  });
  EXPECT_THAT(errors[1], HasSubstr("whether there is an observer"));
}

at::Tensor doubled(const at::Tensor& outputs, const at::Tensor& targets) {
  return 2 * at::cross_entropy_loss(outputs, targets, {}, at::Reduction::Sum);
}

TEST(OwnLoss, IsMinimizedAndReported) {
  const auto losses = on_each_rank("thread", 3, [](Communicator& comm) {
    RunConfig config = of_two_epochs(3);
    config.exec.executor = ExecutorKind::eager;
    config.optimizer.lr = 0.1;
    const auto usual = train(config, noise(), comm);
    config.optimizer.lr = 0.05;
    CustomParts own;
    own.loss = &doubled;
    const auto twice = train(config, noise(), comm, std::move(own));
    TANDEM_CHECK(
        twice.parameters_sha256 == usual.parameters_sha256, "another step was made");
    return std::pair(usual.test.loss, twice.test.loss);
  });
  for (const auto& [usual, twice] : losses) {
    EXPECT_DOUBLE_EQ(2 * usual, twice);
  }
}

TEST(OwnLoss, RunsEagerWithAMessage) {
  const auto comm = make_single_communicator();
  CustomParts own;
  own.loss = &doubled;
  testing::internal::CaptureStdout();
  RunConfig config = of_two_epochs(1);
  EXPECT_EQ(
      train(config, noise(), *comm, std::move(own)).executor, ExecutorKind::eager);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("the loss is custom"));
}

TEST(OwnLoss, MustBeOneValue) {
  const auto comm = make_single_communicator();
  CustomParts own;
  own.loss = [](const at::Tensor& outputs, const at::Tensor& targets) {
    return at::cross_entropy_loss(outputs, targets, {}, at::Reduction::None);
  };
  expect_error<ConfigError>(
      [&] { train(of_two_epochs(1), noise(), *comm, std::move(own)); },
      {"values of the custom loss is 16, expected 1"});
}

TEST(EvaluateCheckpoint, GivesTheResultOfTheRun) {
  const Scratch scratch;
  RunConfig config = small_config();
  config.data.source = "digits";
  config.data.limit = 64;
  config.output.out = scratch / "run";
  const auto comm = make_single_communicator();
  const auto test = train(config, load_dataset("digits", 64), *comm).test;
  CheckpointEvaluation options;
  options.limit = 64;
  const auto again =
      evaluate_checkpoint(newest_checkpoint(scratch / "run/checkpoints"), options);
  EXPECT_EQ(again.correct, test.correct);
  EXPECT_NEAR(again.loss, test.loss, 1e-6);
}

}  // namespace tandem::run_end_test
