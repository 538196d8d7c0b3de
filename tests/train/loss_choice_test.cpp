// Which losses a run can have with which models.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tandem/base/error.h"
#include "tandem/train/assembly.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two steps of three ranks.
RunConfig config_of(const ModelEntry& model, const std::string& loss) {
  RunConfig config;
  config.model = model.name;
  config.loss = loss;
  config.batch_size = 4;
  config.optimizer = "sgd";
  config.lr = 0.001;
  config.ranks = "thread";
  config.nproc = "3";
  return config;
}

Summary summary_of(const RunConfig& config, const DatasetSplits& data) {
  testing::internal::CaptureStdout();
  const auto summaries = on_each_rank(
      "thread", 3, [&](Communicator& comm) { return train(config, data, comm); });
  testing::internal::GetCapturedStdout();
  return summaries[0];
}

bool fits(const std::string& loss, const ModelEntry& model) {
  return loss != "mse" && (loss != "nll" || model.loss == LossKind::nll);
}

// The losses of one model, one executor and one reduction.
void check_losses(const ModelEntry& model, RunConfig settings) {
  const auto data = load_dataset("digits", 24);
  const auto own = summary_of(settings, data);
  for (const std::string loss :
       {"cross_entropy", "nll", "mse", "softmax_cross_entropy"}) {
    SCOPED_TRACE(loss);
    settings.loss = loss;
    if (!fits(loss, model)) {
      EXPECT_THAT(
          error_of<ConfigError>([&] { loss_of(settings); }),
          AllOf(
              HasSubstr("loss " + loss), HasSubstr("--loss "),
              HasSubstr("cross_entropy"), Not(HasSubstr("\n"))));
      EXPECT_THROW(train(settings, data, *make_single_communicator()), ConfigError);
      continue;
    }
    const auto summary = summary_of(settings, data);
    EXPECT_EQ(summary.steps, 2);
    EXPECT_TRUE(std::isfinite(summary.test.loss));
    if (loss == "softmax_cross_entropy") {
      continue;  // another loss
    }
    // The cross-entropy of log-probabilities is their own, but for the last bits.
    EXPECT_NEAR(summary.test.loss, own.test.loss, 1e-4 * own.test.loss);
    if (loss == name_of(model.loss)) {
      EXPECT_EQ(summary.parameters_sha256, own.parameters_sha256);
    }
  }
}

TEST(LossChoice, EveryPairOfLossAndModelTrainsOrIsRefused) {
  for (const auto& model : model_table()) {
    for (const std::string executor : {"auto", "eager", "onednn"}) {
      for (const std::string reduction : {"mean", "sum"}) {
        SCOPED_TRACE(std::string(model.name) + " " + executor + " " + reduction);
        auto config = config_of(model, "auto");
        config.executor = executor;
        config.reduction = reduction;
        check_losses(model, config);
      }
    }
  }
}

TEST(LossChoice, AProgramsOwnModelTakesAnyLossOfClasses) {
  RunConfig config;
  config.model = kCustomModel;
  EXPECT_EQ(loss_of(config).kind, LossKind::cross_entropy);
  config.loss = "nll";
  EXPECT_EQ(loss_of(config).kind, LossKind::nll);
  config.loss = "mse";
  EXPECT_THAT(
      error_of<ConfigError>([&] { loss_of(config); }),
      HasSubstr("target here is a class"));
}

}  // namespace
}  // namespace tandem
