// Combinations of losses and models.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/load_dataset.h"
#include "tandem/model/graph_model.h"
#include "tandem/train/assembly.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"
#include "tests/parallel/replica.h"
#include "tests/train/noise.h"
#include "tests/train/thread_run.h"

namespace tandem::loss_choice_test {

using testing::HasSubstr;

// Two steps on three ranks.
RunConfig config_of(const ModelRow& model) {
  RunConfig config = thread_config(model.value, 3);
  config.training.batch_size = 4;
  config.optimizer.lr = 0.001;
  return config;
}

Summary summary_of(const RunConfig& config, const DatasetSplits& data) {
  testing::internal::CaptureStdout();
  const auto summaries = train_on_threads(3, config, data);
  testing::internal::GetCapturedStdout();
  return summaries[0];
}

bool fits(LossKind loss, const ModelRow& model) {
  return !row_of(loss).of_numbers && (loss != LossKind::nll || model.loss == loss);
}

// Checks all losses with one model, executor and reduction.
void check_losses(const ModelRow& model, RunConfig settings) {
  static const auto data = load_dataset("digits", 24);
  const auto own = summary_of(settings, data);
  for (const auto loss :
       {LossKind::cross_entropy, LossKind::nll, LossKind::mse, LossKind::l1,
        LossKind::bce, LossKind::softmax_cross_entropy}) {
    SCOPED_TRACE(name_of(loss));
    settings.model.loss = loss;
    if (!fits(loss, model)) {
      expect_error<ConfigError>(
          [&] { train(settings, data, *make_single_communicator()); },
          {std::string("loss is ") + name_of(loss), "--loss ", "cross_entropy"});
      continue;
    }
    const auto summary = summary_of(settings, data);
    EXPECT_EQ(summary.steps, 2);
    EXPECT_TRUE(std::isfinite(summary.test.loss));
    if (loss == LossKind::softmax_cross_entropy) {
      continue;  // another loss
    }
    // Except for rounding, a log-softmax does not change log-probabilities, so
    // cross-entropy and NLL are equal.
    EXPECT_NEAR(summary.test.loss, own.test.loss, 1e-4 * own.test.loss);
    if (loss == model.loss) {
      EXPECT_EQ(summary.parameters_sha256, own.parameters_sha256);
    }
  }
}

TEST(LossChoice, EachPairOfLossAndModelTrainsOrIsRefused) {
  for (const auto& model : Choices<ModelKind>::rows) {
    if (!is_built_in(model.value) || is_alias(model)) {
      continue;
    }
    for (const auto executor : {ExecutorKind::eager, ExecutorKind::compiled}) {
      for (const auto reduction : {Reduction::mean, Reduction::sum}) {
        SCOPED_TRACE(
            std::string(model.name) + " " + name_of(executor) + " " +
            name_of(reduction));
        auto config = config_of(model);
        config.exec.executor = executor;
        config.model.reduction = reduction;
        check_losses(model, config);
      }
    }
  }
}

TEST(LossChoice, AProgramsOwnModelAcceptsAnyLossOfClasses) {
  RunConfig config;
  config.model.kind = ModelKind::custom;
  EXPECT_EQ(loss_of(config).kind, LossKind::cross_entropy);
  config.model.loss = LossKind::nll;
  EXPECT_EQ(loss_of(config).kind, LossKind::nll);
  config.model.loss = LossKind::mse;
  expect_error<ConfigError>(
      [&] { static_cast<void>(loss_of(config)); }, {"target here is a class"});
}

// Returns the warnings about a network of one linear layer, which ends in `target`.
std::string warnings_for(
    const char* target, std::vector<Argument> more,
    LossKind loss = LossKind::automatic) {
  GraphBuilder graph({1, 28, 28});
  const ValueId flat = graph.call(
      "aten::flatten", "using_ints",
      {Argument::of_value(graph.input()), Argument::of(int64_t{1})}, {784});
  const ValueId x = graph.linear(flat, "fc", waves({10, 784}).set_requires_grad(true));
  const std::string overload = more.empty() ? "" : "int";
  more.insert(more.begin(), Argument::of_value(x));
  const ValueId end = graph.call(target, overload, more, {10}, "last");
  graph.call("aten::contiguous", "", {Argument::of_value(end)}, {10});
  RunConfig config = config_of(row_of(ModelKind::custom));
  config.exec.precision = Precision::fp64;
  config.model.loss = loss;
  testing::internal::CaptureStderr();
  static_cast<void>(assemble(
      config, noise({1, 28, 28}, 10, 8), *make_single_communicator(),
      make_graph_model(graph.graph())));
  return testing::internal::GetCapturedStderr();
}

TEST(LossChoice, WarnsOfASoftmaxBeforeTheLoss) {
  const std::vector<Argument> dim = {Argument::of(int64_t{1})};
  const auto warning = warnings_for("aten::softmax", dim);
  EXPECT_THAT(
      warning,
      testing::AllOf(
          HasSubstr("warning: [model] training is slow"),
          HasSubstr("ends in a softmax (softmax"), HasSubstr("loss cross_entropy"),
          HasSubstr("remove the softmax from the network")));
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1);
  EXPECT_THAT(
      warnings_for("aten::softmax", dim, LossKind::nll),
      HasSubstr("[model] the loss is wrong"));
  EXPECT_EQ(warnings_for("aten::log_softmax", dim), "");
  EXPECT_EQ(warnings_for("aten::relu", {}), "");
}

TEST(LossChoice, LossesOfNumbersNeedOutputsOfAnySign) {
  RunConfig config;
  config.model.kind = ModelKind::net;
  expect_error<ConfigError>(
      [&] { static_cast<void>(loss_of(config, nullptr, true)); },
      {"loss is mse, but model net ends in a log-softmax"});
}

TEST(LossChoice, TargetsThatAreNumbersSelectLossesOfNumbers) {
  RunConfig config;
  config.model.kind = ModelKind::lenet3x3;
  const auto chosen = [&] { return loss_of(config, nullptr, true).kind; };
  EXPECT_EQ(chosen(), LossKind::mse);
  for (const auto loss : {LossKind::mse, LossKind::l1, LossKind::bce}) {
    config.model.loss = loss;
    EXPECT_EQ(chosen(), loss);
  }
  for (const auto loss :
       {LossKind::cross_entropy, LossKind::nll, LossKind::softmax_cross_entropy}) {
    config.model.loss = loss;
    EXPECT_EQ(
        error_of<ConfigError>(chosen),
        std::string("[config] loss is ") + name_of(loss) +
            ", which needs targets that are classes, but the targets here are numbers; "
            "use --loss auto, mse, l1 or bce");
  }
}

}  // namespace tandem::loss_choice_test
