// Batch norm of vectors needs two or more samples in each micro-batch.

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/graph/single_values.h"
#include "tandem/model/graph_model.h"
#include "tandem/train/training_batches.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"
#include "tests/graph/graphs.h"
#include "tests/train/thread_run.h"

namespace tandem::smallest_batch_test {

using testing::AllOf;
using testing::HasSubstr;

Dataset vectors(int64_t size) {
  auto data = dataset_of(
      size, make_samples<float>({4}, size, [](int64_t i) { return i % 11; }),
      make_samples<int64_t>({}, size, [](int64_t i) { return i % 3; }));
  data.num_classes = 3;
  return data;
}

// Returns the smallest batch that the loaders of all shards make.
int64_t smallest_of_loaders(const RunConfig& config, const Dataset& data, int shards) {
  int64_t smallest = data.size;
  for (int shard = 0; shard < shards; ++shard) {
    LoaderOptions options;
    options.batch_size = config.training.batch_size;
    options.micro_batches = config.training.accumulate;
    const DataShard part{shards, shard};
    Loader loader(data, sampler_options(config, data, part), options);
    loader.seek(0);
    Batch batch;
    for (int64_t step = 0; step < loader.num_steps(); ++step) {
      while (loader.next(batch)) {
        smallest = std::min(smallest, batch.count());
      }
    }
  }
  return smallest;
}

TEST(SmallestBatch, EqualsThatOfTheLoaders) {
  for (const bool divides : {false, true}) {
    for (const auto uneven : {Uneven::pad, Uneven::drop, Uneven::join}) {
      for (int64_t size = 8; size < 30; ++size) {
        for (const int shards : {1, 2, 3}) {
          for (const int64_t micros : {1, 2, 3}) {
            RunConfig config;
            config.data.uneven = uneven;
            config.training.divide_batch = divides;
            config.training.batch_size = 4;
            config.training.accumulate = micros;
            const auto data = vectors(size);
            ASSERT_EQ(
                smallest_batch(config, data, {shards, 0}),
                smallest_of_loaders(config, data, shards))
                << divides << name_of(uneven) << size << " on " << shards << " with "
                << micros;
          }
        }
      }
    }
  }
}

// A linear layer, batch norm of its 3 outputs, in float32.
std::unique_ptr<Model> make_norm_model() {
  GraphBuilder builder({4});
  const auto x = builder.linear(builder.input(), "fc", waves({3, 4}));
  builder.call(
      "aten::batch_norm", "",
      {Argument::of_value(x),
       Argument::of_value(builder.state("bn.weight", at::ones({3}, at::kDouble))),
       Argument::of_value(builder.state("bn.bias", at::zeros({3}, at::kDouble))),
       Argument::of_value(
           builder.state("mean", at::zeros({3}, at::kDouble), ValueKind::buffer)),
       Argument::of_value(
           builder.state("var", at::ones({3}, at::kDouble), ValueKind::buffer)),
       Argument::of(true), Argument::of(0.1), Argument::of(1e-5), Argument::of(false)},
      {3}, "bn");
  return make_graph_model(builder.trainable());
}

std::string error_of_training(const RunConfig& config, int ranks, int64_t size) {
  const DatasetSplits data{vectors(size), vectors(9)};
  return error_of<ConfigError>([&] {
    on_each_rank("thread", ranks, [&](Communicator& comm) {
      return train(config, data, comm, make_norm_model());
    });
  });
}

TEST(BatchNormOfVectors, ABatchOfOneSampleIsAnErrorBeforeTraining) {
  for (const auto strategy :
       {StrategyKind::sequential, StrategyKind::data_parallel, StrategyKind::averaging,
        StrategyKind::parameter_server, StrategyKind::hogwild}) {
    SCOPED_TRACE(name_of(strategy));
    const int ranks = strategy == StrategyKind::sequential ? 1 : 3;
    auto config = thread_config(ModelKind::custom, ranks);
    config.strategy.kind = strategy;
    config.exec.executor = ExecutorKind::eager;
    // Workers of a parameter server are two of three ranks.
    const int64_t shards = strategy == StrategyKind::parameter_server ? 2 : ranks;
    const int64_t size = 17 * shards;
    EXPECT_THAT(
        error_of_training(config, ranks, size),
        AllOf(
            HasSubstr("a training batch has 1 sample"), HasSubstr("batch size 8"),
            HasSubstr("set --batch-size, for example to 7")));
    config.training.batch_size = 7;
    const DatasetSplits data{vectors(size), vectors(9)};
    on_each_rank("thread", ranks, [&](Communicator& comm) {
      return train(config, data, comm, make_norm_model());
    });
  }
}

TEST(BatchNormOfVectors, NeedsTwoValuesPerChannel) {
  const auto model = make_norm_model();
  const Node* norm = find_single_value_norm(*model->graph());
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->module, "bn");
  EXPECT_THROW(check_values_per_channel(1, "bn"), ConfigError);
  EXPECT_NO_THROW(check_values_per_channel(2, "bn"));
  ForwardContext context = in_mode(true);
  const auto run = [&](int64_t samples) {
    return model->forward(waves({samples, 4}).to(at::kFloat), context);
  };
  EXPECT_THROW(run(1), ConfigError);
  EXPECT_NO_THROW(run(2));
  context.training = false;
  EXPECT_NO_THROW(run(1));
}

}  // namespace tandem::smallest_batch_test
