// Runs whose ranks each compute a part of the model.

#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::pipeline_run_test {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Three epochs of five steps with 24 samples; the last step has four.
RunConfig small_run(StrategyKind strategy) {
  RunConfig config = thread_config(ModelKind::net5x5, 1);
  config.exec.precision = Precision::fp64;
  config.strategy.kind = strategy;
  config.training.accumulate = 3;
  config.training.epochs = 3;
  config.data.uneven = Uneven::join;
  config.optimizer.kind = OptimizerKind::adam;
  config.optimizer.lr = 0.001;
  config.output.eval_batch_size = 16;
  config.schedule.kind = ScheduleKind::step;
  return config;
}

TEST(PipelineRun, HasTheWholeModelsHashOnAllRanks) {
  const auto whole = train_on_digits(1, small_run(StrategyKind::sequential))[0];
  for (const auto schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward}) {
    for (const int stages : {2, 3}) {
      auto config = small_run(StrategyKind::pipeline);
      config.strategy.pipeline_schedule = schedule;
      for (const auto& rank : train_on_digits(stages, config)) {
        EXPECT_EQ(rank.parameters_sha256, whole.parameters_sha256);
        EXPECT_EQ(rank.test.correct, whole.test.correct);
        EXPECT_EQ(rank.test.count, 100);
        EXPECT_NEAR(rank.test.loss, whole.test.loss, 1e-12);
        EXPECT_EQ(
            rank.measurements.at("stage_peak_activation_bytes").size(),
            static_cast<size_t>(stages));
      }
    }
  }
}

TEST(PipelineRun, AHybridEqualsDataParallel) {
  const auto replicas = train_on_digits(2, small_run(StrategyKind::data_parallel));
  auto config = small_run(StrategyKind::pipeline);
  config.strategy.stages = 2;
  const auto grid = train_on_digits(4, config);
  EXPECT_EQ(grid[3].parameters_sha256, replicas[0].parameters_sha256);
  EXPECT_EQ(grid[0].test.correct, replicas[0].test.correct);
  config.strategy.stages = 1;
  EXPECT_EQ(
      train_on_digits(2, config)[0].parameters_sha256, replicas[0].parameters_sha256);
}

TEST(PipelineRun, ResumesInTheMiddleOfAnEpochWithTheSameBits) {
  const Scratch scratch;
  auto config = small_run(StrategyKind::pipeline);
  config.output.out = scratch / "whole";
  config.output.checkpoint_every = 7;
  config.output.keep_checkpoints = 0;
  const auto whole = train_on_digits(3, config)[0].parameters_sha256;
  config.output.out = scratch / "parts";
  // In the second epoch, after two of five steps.
  config.output.resume = scratch / "whole/checkpoints/step-00000007";
  EXPECT_EQ(train_on_digits(3, config)[0].parameters_sha256, whole);
}

TEST(PipelineRun, CheckpointsWorkWithOtherStagesAndStrategies) {
  const Scratch scratch;
  auto config = small_run(StrategyKind::sequential);
  const auto whole = train_on_digits(1, config)[0].parameters_sha256;
  // One epoch with each strategy and size.
  struct Way {
    StrategyKind strategy;
    int size;
  };
  int64_t epochs = 0;
  for (const Way& way :
       {Way{StrategyKind::pipeline, 2}, Way{StrategyKind::data_parallel, 1},
        Way{StrategyKind::model_parallel, 4}}) {
    config.strategy.kind = way.strategy;
    config.training.epochs = ++epochs;
    config.output.out = scratch / std::to_string(epochs);
    const auto last = train_on_digits(way.size, config)[0].parameters_sha256;
    config.output.resume = newest_checkpoint(config.output.out + "/checkpoints");
    EXPECT_EQ(last == whole, epochs == 3);
  }
}

TEST(PipelineRun, UnevenSamplesAreReadOnce) {
  // PartitionAudit is an error otherwise.
  for (const auto uneven : {Uneven::pad, Uneven::drop, Uneven::join}) {
    auto config = small_run(StrategyKind::pipeline);
    config.data.uneven = uneven;
    config.strategy.stages = 2;
    config.training.epochs = 1;
    EXPECT_EQ(train_on_digits(6, config)[0].test.count, 100);
  }
}

// A sequence of layers with a parameter that changes in the fifth forward pass.
class NudgedModel : public Model {
 public:
  NudgedModel() : model_(make_model(ModelKind::net5x5, options())) {}

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    if (++calls_ == 5) {
      const c10::AutoGradMode no_grad(false);
      model_->parameters()[0].tensor.view(-1)[2].add_(1e-9);
    }
    return model_->forward(input, context);
  }
  std::vector<NamedTensor> parameters() const override {
    return model_->parameters();
  }
  std::vector<NamedTensor> buffers() const override {
    return model_->buffers();
  }
  const Graph* graph() const override {
    return model_->graph();
  }
  void keep_nodes(const NodeRange& range) override {
    model_->keep_nodes(range);
  }

 private:
  static ModelOptions options() {
    ModelOptions options;
    options.dtype = at::kDouble;
    return options;
  }

  std::unique_ptr<Model> model_;
  int calls_ = 0;
};

TEST(PipelineRun, DriftOfAStagesReplicasIsAnError) {
  auto config = small_run(StrategyKind::pipeline);
  config.model.kind = ModelKind::custom;
  config.strategy.stages = 2;
  config.output.log_every = 1;
  const auto run_nudged = [&] {
    return on_each_rank("thread", 4, [&](Communicator& comm) {
      auto model = std::make_unique<NudgedModel>();
      auto other = make_model(ModelKind::net5x5, [] {
        ModelOptions options;
        options.dtype = at::kDouble;
        return options;
      }());
      return train(
          config, hundred_digits(), comm,
          comm.rank() == 3 ? std::unique_ptr<Model>(std::move(model))
                           : std::move(other));
    });
  };
  expect_error<Error>(
      run_nudged, {"parameter 'conv2.weight' differs between replica 1", "replica 0"});
  config.strategy.drift_check = DriftCheck::resync;
  EXPECT_EQ(run_nudged()[3].test.count, 100);
}

TEST(PipelineRun, RefusesAModelWithoutParameters) {
  auto config = small_run(StrategyKind::pipeline);
  config.model.kind = ModelKind::custom;
  const auto messages = on_each_rank("thread", 2, [&](Communicator& comm) {
    return error_of<ConfigError>([&] {
      auto model = make_function_model([](const at::Tensor& x) { return x; }, {});
      train(config, hundred_digits(), comm, std::move(model));
    });
  });
  EXPECT_THAT(messages, Each(HasSubstr("no parameter of the model gets a gradient")));
}

}  // namespace tandem::pipeline_run_test
