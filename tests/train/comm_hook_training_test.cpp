// Training with 16-bit gradients. drift_check would stop the run if replicas drifted.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/data/load_dataset.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"

namespace tandem::comm_hook_training_test {

std::vector<Summary> train_with(
    CommHook hook, const std::string& backend, const DatasetSplits& data) {
  RunConfig config;
  config.model.kind = ModelKind::simplenet;
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.lr = 0.05;
  config.training.epochs = 4;
  config.training.batch_size = 32;
  config.ranks.nproc = 2;
  config.strategy.comm_hook = hook;
  config.output.log_line = "off";
  return on_each_rank(
      backend, 2, [&](Communicator& comm) { return train(config, data, comm); });
}

TEST(CommHookTraining, KeepsAccuracyAndEqualBitsOnAllRanks) {
  const auto data = load_dataset("digits", 4000);
  const auto exact = train_with(CommHook::none, "thread", data);
  EXPECT_GE(exact[0].test.accuracy(), 70);
  for (const auto hook : {CommHook::fp16, CommHook::bf16}) {
    for (const std::string backend : {"thread", "shm", "gloo"}) {
      SCOPED_TRACE(std::string(name_of(hook)) + " " + backend);
      const auto ranks = train_with(hook, backend, data);
      EXPECT_NEAR(ranks[0].test.accuracy(), exact[0].test.accuracy(), 1);
      EXPECT_EQ(ranks[1].parameters_sha256, ranks[0].parameters_sha256);
      EXPECT_NE(ranks[0].parameters_sha256, exact[0].parameters_sha256);
    }
  }
}

}  // namespace tandem::comm_hook_training_test
