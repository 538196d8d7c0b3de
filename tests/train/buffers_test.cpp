// Running statistics of batch norm, and test accuracies of the ranks, for each setting
// of
// --buffers.

#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/data/load_dataset.h"
#include "tandem/train/assembly.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem::buffers_test {

struct RankResult {
  // Running means and variances.
  at::Tensor statistics;
  double accuracy = 0;
};

RunConfig config_with(BufferSync buffers) {
  RunConfig config;
  config.model.kind = ModelKind::convnet_bn;
  config.strategy.buffers = buffers;
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.lr = 0.05;
  config.training.batch_size = 8;
  return config;
}

Loader loader_of(const Dataset& data, int shard, int num_shards, int64_t batch_size) {
  SamplerOptions sampler;
  sampler.num_shards = num_shards;
  sampler.shard = shard;
  LoaderOptions options;
  options.batch_size = batch_size;
  return Loader(data, sampler, options);
}

// Each rank evaluates the whole test set with its own running statistics.
double accuracy_of(Strategy& strategy, const Dataset& test) {
  StepContext context;
  context.training = false;
  auto loader = loader_of(test, 0, 1, 200);
  loader.seek(0);
  double correct = 0;
  for (Batch batch; loader.next(batch);) {
    correct += strategy.evaluate_batch(&batch, context).values().metric;
  }
  return 100 * correct / static_cast<double>(test.size);
}

std::vector<RankResult> train_with(BufferSync buffers) {
  const auto data = load_dataset("digits", 400);
  const auto config = config_with(buffers);
  return on_each_rank("thread", 2, [&](Communicator& comm) {
    Assembly parts = assemble(config, data.train, comm);
    parts.strategy->start();
    auto loader =
        loader_of(data.train, comm.rank(), comm.size(), config.training.batch_size);
    loader.seek(0);
    StepContext context;
    context.lr = config.optimizer.lr;
    for (Batch batch; loader.next(batch); ++context.step) {
      parts.strategy->train_step({batch}, context);
    }
    parts.strategy->before_evaluation();
    RankResult result;
    std::vector<at::Tensor> flat;
    for (const auto& buffer : parts.model->buffers()) {
      flat.push_back(buffer.tensor.to(at::kDouble).reshape(-1));
    }
    result.statistics = at::cat(flat);
    result.accuracy = accuracy_of(*parts.strategy, data.test);
    return result;
  });
}

double largest_difference(const std::vector<RankResult>& ranks) {
  return (ranks[0].statistics - ranks[1].statistics).abs().max().item<double>();
}

TEST(Buffers, WithoutSyncDifferBetweenRanksAsTestAccuraciesDo) {
  const auto ranks = train_with(BufferSync::off);
  RecordProperty("statistics", std::to_string(largest_difference(ranks)));
  RecordProperty("accuracy_0", std::to_string(ranks[0].accuracy));
  RecordProperty("accuracy_1", std::to_string(ranks[1].accuracy));
  EXPECT_GT(largest_difference(ranks), 1e-3);
  EXPECT_NE(ranks[0].accuracy, ranks[1].accuracy);
}

TEST(Buffers, WithSyncAreEqualAsTestAccuraciesAre) {
  for (const auto buffers :
       {BufferSync::broadcast, BufferSync::average, BufferSync::sync}) {
    SCOPED_TRACE(name_of(buffers));
    const auto ranks = train_with(buffers);
    RecordProperty(name_of(buffers), std::to_string(ranks[0].accuracy));
    EXPECT_EQ(largest_difference(ranks), 0);
    EXPECT_EQ(ranks[0].accuracy, ranks[1].accuracy);
    EXPECT_GT(ranks[0].accuracy, 20);
  }
}

// The last step of an epoch of 33 samples has one sample, so rank 1 has an empty batch.
// The resumed run starts there.
TEST(Buffers, SyncWorksOnUnevenDataAndResumes) {
  const Scratch scratch;
  auto config = config_with(BufferSync::sync);
  config.data.uneven = Uneven::join;
  config.training.accumulate = 2;
  config.training.epochs = 2;
  config.output.checkpoint_every = 3;
  config.output.out = scratch / "whole";
  const auto data = load_dataset("digits", 33);
  const auto run = [&] {
    return on_each_rank("gloo", 2, [&](Communicator& comm) {
      return train(config, data, comm).parameters_sha256;
    });
  };
  const auto whole = run();
  EXPECT_EQ(whole[0], whole[1]);
  config.output.resume = scratch / "whole/checkpoints/step-00000003";
  config.output.out = scratch / "resumed";
  EXPECT_EQ(run(), whole);
}

TEST(Buffers, SyncRefusesAProgramsOwnModel) {
  auto config = config_with(BufferSync::sync);
  config.model.kind = ModelKind::custom;
  const auto data = load_dataset("digits", 10);
  const auto comm = make_single_communicator();
  expect_error<ConfigError>(
      [&] { return assemble(config, data.train, *comm, make_function_model({}, {})); },
      {"change --buffers to"});
}

}  // namespace tandem::buffers_test
