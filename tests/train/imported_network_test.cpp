// Networks that PyTorch exported and modules in C++, trained by every strategy.

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/formats/safetensors.h"
#include "tandem/graph/pt2.h"
#include "tandem/model/graph_model.h"
#include "tandem/model/model_file.h"
#include "tandem/model/module_model.h"
#include "tandem/train/assembly.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/graph/fixtures.h"
#include "tests/graph/graphs.h"
#include "tests/graph/residual_module.h"
#include "tests/train/noise.h"

namespace tandem::imported_network_test {

using testing::HasSubstr;

constexpr int64_t kSamples = 6;

RunConfig config_for(const std::string& path) {
  RunConfig config;
  config.model.kind = ModelKind::file;
  config.model.file = path;
  config.exec.precision = Precision::fp64;
  config.exec.executor = ExecutorKind::eager;
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.momentum = 0.9;
  config.optimizer.lr = 0.05;
  return config;
}

// Returns the samples of a rank in a step of fixtures/losses.json.
Batch batch_of(const Dataset& data, int64_t step, int rank, int ranks) {
  const auto mine = at::arange(rank, kSamples, ranks);
  Batch batch;
  batch.inputs = fixture_images(data.inputs.shape, step).index_select(0, mine);
  batch.targets = mine.mul(7).add(step).remainder(data.num_classes);
  batch.global_count = kSamples;
  return batch;
}

// Trains as PyTorch did in fixtures/losses.json. Returns the mean losses of the steps.
std::vector<double> losses_of(const std::string& path, int ranks, size_t steps) {
  const RunConfig config = config_for(path);
  const Dataset data = noise_for(read_pt2(path), kSamples);
  std::vector<double> losses(steps);
  std::mutex mutex;
  run_backend("thread", ranks, [&](Communicator& comm) {
    Assembly parts = assemble(config, data, comm);
    parts.strategy->start();
    StepContext context;
    context.lr = config.optimizer.lr;
    for (size_t step = 0; step < steps; ++step) {
      context.step = static_cast<int64_t>(step);
      const auto batch = batch_of(data, context.step, comm.rank(), ranks);
      const auto sums = parts.strategy->train_step({batch}, context).values();
      const std::lock_guard lock(mutex);
      losses[step] += sums.loss / kSamples;
    }
  });
  return losses;
}

class ImportedNetwork : public testing::TestWithParam<std::string> {};

TEST_P(ImportedNetwork, LossesEqualThoseOfPyTorch) {
  const Scratch scratch;
  for (const auto& version : kTorchVersions) {
    const auto path = unpack_fixture(scratch, GetParam() + "-" + version + ".pt2");
    for (const int ranks : {1, 2}) {
      const auto expected =
          recorded(GetParam(), version)[ranks == 1 ? "one_rank" : "two_ranks"]
              .get<std::vector<double>>();
      const auto found = losses_of(path, ranks, expected.size());
      for (size_t step = 0; step < expected.size(); ++step) {
        ASSERT_NEAR(found[step], expected[step], 1e-9)
            << version << ", " << ranks << " ranks, step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, ImportedNetwork, testing::ValuesIn(kNetworks),
    [](const auto& test) { return test.param; });

// Trains a few steps of a network with skip connections and batch norm on each rank.
std::vector<Summary> train_on(
    const std::string& backend, int ranks, const RunConfig& config,
    const std::string& shape_of = "") {
  const Graph graph = read_pt2(shape_of.empty() ? config.model.file : shape_of);
  const DatasetSplits data{noise_for(graph, 96), noise_for(graph, 30)};
  return on_each_rank(
      backend, ranks, [&](Communicator& comm) { return train(config, data, comm); });
}

RunConfig run_of(const std::string& path, StrategyKind strategy) {
  RunConfig config = config_for(path);
  config.strategy.kind = strategy;
  config.ranks.kind = RankKind::thread;
  config.training.batch_size = 4;
  config.training.epochs = 2;
  return config;
}

TEST(ImportedNetworkRun, EveryStrategyTrainsOn3RanksOverEveryBackend) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "residual-2.15.0.pt2");
  for (const StrategyKind strategy :
       {StrategyKind::data_parallel, StrategyKind::averaging,
        StrategyKind::parameter_server}) {
    std::string hash;
    for (const char* backend : {"thread", "shm", "gloo"}) {
      const auto ranks = train_on(backend, 3, run_of(path, strategy));
      EXPECT_EQ(ranks[1].parameters_sha256, ranks[0].parameters_sha256);
      EXPECT_TRUE(std::isfinite(ranks[0].test.loss));
      // Gloo adds in another order.
      if (hash.empty()) {
        hash = ranks[0].parameters_sha256;
      } else if (std::string(backend) == "shm") {
        EXPECT_EQ(ranks[0].parameters_sha256, hash) << name_of(strategy);
      }
    }
  }
  const auto hogwild = train_on("thread", 3, run_of(path, StrategyKind::hogwild));
  EXPECT_TRUE(std::isfinite(hogwild[0].test.loss));
}

TEST(ImportedNetworkRun, APipelineEqualsOneRankWithMicroBatches) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "residual-2.15.0.pt2");
  auto config = run_of(path, StrategyKind::data_parallel);
  config.training.accumulate = 4;
  const auto whole = train_on("thread", 1, config)[0];
  config.strategy.kind = StrategyKind::pipeline;
  for (const char* backend : {"thread", "shm", "gloo"}) {
    const auto stages = train_on(backend, 3, config);
    EXPECT_EQ(stages[2].parameters_sha256, whole.parameters_sha256) << backend;
    EXPECT_EQ(stages[0].test.correct, whole.test.correct);
  }
  config.strategy.cut = "head";
  EXPECT_EQ(
      train_on("thread", 2, config)[0].parameters_sha256, whole.parameters_sha256);
}

// Thread ranks share LibTorch's generator, so the weights are not random.
std::unique_ptr<Model> residual_module() {
  Residual net;
  for (auto& parameter : net->parameters()) {
    parameter.set_data(waves(parameter.sizes().vec()).to(at::kFloat));
  }
  return make_module_model(net);
}

TEST(ImportedNetworkRun, APipelineDividesAModuleAtItsCuts) {
  const DatasetSplits data{noise({3, 8, 8}, 10, 96), noise({3, 8, 8}, 10, 30)};
  RunConfig config;
  config.model.kind = ModelKind::custom;
  config.exec.executor = ExecutorKind::eager;
  config.ranks.kind = RankKind::thread;
  config.training.batch_size = 4;
  config.training.epochs = 2;
  config.training.accumulate = 4;
  const auto train_module = [&](const std::string& backend, int ranks) {
    return on_each_rank(backend, ranks, [&](Communicator& comm) {
      return train(config, data, comm, residual_module());
    });
  };
  const auto whole = train_module("thread", 1)[0];
  config.strategy.kind = StrategyKind::pipeline;
  config.strategy.cut = "conv2,fc";
  for (const char* backend : {"thread", "shm", "gloo"}) {
    const auto stages = train_module(backend, 3);
    EXPECT_EQ(stages[2].parameters_sha256, whole.parameters_sha256) << backend;
    EXPECT_EQ(stages[0].test.correct, whole.test.correct);
  }
}

TEST(ImportedNetworkRun, ResumesWithTheSameBitsAndItsOwnCopyOfTheFile) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "residual-2.15.0.pt2");
  auto config = run_of(path, StrategyKind::data_parallel);
  config.output.out = scratch / "whole";
  config.output.checkpoint_every = 7;
  config.output.keep_checkpoints = 0;
  const auto whole = train_on("shm", 3, config)[0].parameters_sha256;
  config.output.out = scratch / "parts";
  config.output.resume = scratch / "whole/checkpoints/step-00000007";
  EXPECT_EQ(train_on("shm", 3, config)[0].parameters_sha256, whole);
  EXPECT_EQ(read_file(scratch / "parts/network.pt2"), fixture("residual-2.15.0.pt2"));
}

// With the initial weights of the built-in model, with its dropout masks or without
// dropout, and with the loss of a network that ends in a log-softmax.
TEST(ImportedNetworkRun, NetEqualsTheBuiltInModelBitForBit) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "net-2.15.0.pt2");
  ModelOptions options;
  options.seed = 8;
  SafetensorsFile weights;
  weights.tensors = make_model(ModelKind::net, options)->parameters();
  write_safetensors(scratch / "init.safetensors", weights);
  RunConfig config = run_of(path, StrategyKind::data_parallel);
  config.exec.precision = Precision::fp32;
  config.model.init = scratch / "init.safetensors";
  config.training.epochs = 1;
  for (const ExecutorKind executor : {ExecutorKind::eager, ExecutorKind::compiled}) {
    for (const bool dropout : {true, false}) {
      config.exec.executor = executor;
      config.model.dropout = dropout;
      config.model.kind = ModelKind::net;
      config.model.file.clear();
      const auto built_in = train_on("thread", 2, config, path)[0];
      config.model.kind = ModelKind::file;
      config.model.file = path;
      const auto imported = train_on("thread", 2, config)[0];
      EXPECT_EQ(imported.parameters_sha256, built_in.parameters_sha256);
      EXPECT_EQ(imported.test.loss, built_in.test.loss);
    }
  }
}

std::string error_with(const std::string& path, const DatasetSplits& data) {
  return error_of<ConfigError>([&] {
    run_backend("thread", 1, [&](Communicator& comm) {
      train(run_of(path, StrategyKind::data_parallel), data, comm);
    });
  });
}

TEST(ImportedNetworkRun, DataOfAnotherShapeAndTooManyClassesAreErrors) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "residual-2.15.0.pt2");
  auto images = noise_for(read_pt2(path), 12);
  auto more = images;
  more.num_classes = 11;
  EXPECT_THAT(
      error_with(path, {more, more}),
      HasSubstr("the number of outputs is 5, expected 11"));
  images.inputs.shape = {1, 3 * images.inputs.shape[1], images.inputs.shape[2]};
  expect_parts(
      error_with(path, {images, images}),
      {"has the shape [N, 3, ", "but the data has [N, 1, ", "--data"});
}

}  // namespace tandem::imported_network_test
