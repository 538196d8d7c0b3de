// Runs with frozen parameters and with parameter groups.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/config/name_patterns.h"
#include "tandem/formats/safetensors.h"
#include "tandem/model/module_model.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::fine_tuning_test {

// Two epochs of five steps with 24 samples; the last step has four.
RunConfig small_run(StrategyKind strategy, ExecutorKind executor) {
  RunConfig config = thread_config(ModelKind::convnet_bn, 1);
  config.exec.executor = executor;
  config.strategy.kind = strategy;
  config.training.accumulate = 3;
  config.training.epochs = 2;
  config.data.uneven = Uneven::join;
  config.optimizer.kind = OptimizerKind::adam;
  config.optimizer.lr = 0.001;
  config.output.eval_batch_size = 50;
  return config;
}

std::map<std::string, at::Tensor> by_name(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, at::Tensor> named;
  for (const auto& entry : tensors) {
    named[entry.name] = entry.tensor;
  }
  return named;
}

std::vector<NamedTensor> initial_parameters(const RunConfig& config) {
  ModelOptions options;
  options.seed = static_cast<uint64_t>(config.training.seed);
  return make_model(config.model.kind, options)->parameters();
}

// Compares the parameters of the run's last checkpoint with the initial parameters.
void expect_only_others_change(const RunConfig& config, const std::string& out) {
  const auto frozen = parse_patterns("freeze", config.model.freeze);
  const auto trained = by_name(read_weights(out));
  for (const auto& [name, tensor] : initial_parameters(config)) {
    EXPECT_EQ(trained.at(name).equal(tensor), matches_any(frozen, name)) << name;
  }
}

using Frozen = std::tuple<StrategyKind, ExecutorKind, int, std::string>;

class FrozenParameters : public testing::TestWithParam<Frozen> {};

TEST_P(FrozenParameters, KeepTheirBits) {
  const auto& [strategy, executor, size, pattern] = GetParam();
  const Scratch scratch;
  RunConfig config = small_run(strategy, executor);
  config.model.freeze = pattern;
  config.output.out = scratch / "run";
  const auto ranks = train_on_digits(size, config);
  EXPECT_EQ(ranks.back().parameters_sha256, ranks.front().parameters_sha256);
  expect_only_others_change(config, config.output.out);
}

std::string name_of(const testing::TestParamInfo<Frozen>& info) {
  const auto& [strategy, executor, size, pattern] = info.param;
  std::string layer;
  for (const char c : pattern) {
    layer += std::isalnum(c) != 0 ? std::string(1, c) : "";
  }
  return std::string(name_of(strategy)) + "_" + name_of(executor) + "_" +
         std::to_string(size) + "_" + layer;
}

const auto kExecutors = testing::Values(ExecutorKind::eager, ExecutorKind::compiled);
// The first layers, the last layer, a layer in the middle, and a part of each layer.
const auto kPatterns =
    testing::Values("layer1.*,layer2.0.*", "fc.*", "layer2.*", "*.weight");

INSTANTIATE_TEST_SUITE_P(
    DataParallel, FrozenParameters,
    testing::Combine(
        testing::Values(StrategyKind::data_parallel), kExecutors, testing::Values(1, 3),
        kPatterns),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    OtherStrategies, FrozenParameters,
    testing::Combine(
        testing::Values(
            StrategyKind::averaging, StrategyKind::parameter_server,
            StrategyKind::hogwild),
        kExecutors, testing::Values(3), testing::Values("layer1.*,layer2.0.*")),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Pipeline, FrozenParameters,
    testing::Combine(
        testing::Values(StrategyKind::pipeline), kExecutors, testing::Values(3),
        kPatterns),
    name_of);

// Stages: both convolutions, fc1, fc2. In these cases, the first stage, the first two
// stages, the second stage or the last stage is frozen.
TEST(FrozenStages, AHybridHasTheBitsOfOneRank) {
  for (const char* pattern : {"conv*", "conv*,fc1.*", "fc1.*", "fc2.*", "conv1.*"}) {
    auto whole = small_run(StrategyKind::sequential, ExecutorKind::eager);
    whole.model.kind = ModelKind::net5x5;
    whole.exec.precision = Precision::fp64;
    whole.model.freeze = pattern;
    const auto expected = train_on_digits(1, whole)[0];
    for (const auto schedule :
         {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward}) {
      auto config = whole;
      config.strategy.kind = StrategyKind::pipeline;
      config.strategy.cut = "fc1,fc2";
      config.strategy.pipeline_schedule = schedule;
      for (const auto& rank : train_on_digits(3, config)) {
        EXPECT_EQ(rank.parameters_sha256, expected.parameters_sha256) << pattern;
        EXPECT_NEAR(rank.test.loss, expected.test.loss, 1e-12) << pattern;
      }
    }
  }
}

TEST(FrozenStages, SendNoGradients) {
  auto config = small_run(StrategyKind::pipeline, ExecutorKind::eager);
  config.model.kind = ModelKind::net5x5;
  config.strategy.cut = "fc1";
  config.training.epochs = 1;
  const double both = train_on_digits(2, config)[0].bytes_sent_per_rank;
  config.model.freeze = "conv*";
  const double forward = train_on_digits(2, config)[0].bytes_sent_per_rank;
  // Activations and their gradients have the same size; evaluations send activations.
  EXPECT_LT(forward, 0.85 * both);
}

TEST(FrozenParametersRun, EverySyncAndOptimizerStateHasTheSameBits) {
  auto config = small_run(StrategyKind::data_parallel, ExecutorKind::eager);
  config.training.accumulate = 1;
  config.exec.precision = Precision::fp64;
  config.model.freeze = "layer1.*";
  config.strategy.shard = Sharding::none;
  const auto expected = train_on_digits(3, config)[0].parameters_sha256;
  for (const auto sync : {SyncMode::parameter, SyncMode::flat, SyncMode::overlap}) {
    for (const auto state : {Sharding::none, Sharding::optimizer}) {
      config.strategy.sync = sync;
      config.strategy.shard = state;
      EXPECT_EQ(train_on_digits(3, config)[2].parameters_sha256, expected)
          << name_of(sync) << " " << name_of(state);
    }
  }
}

TEST(FrozenParametersRun, SendsOnlyTheGradientsOfTrainedParameters) {
  auto config = small_run(StrategyKind::data_parallel, ExecutorKind::compiled);
  config.model.kind = ModelKind::net;
  config.training.epochs = 1;
  const auto whole = train_on_digits(3, config)[0];
  config.model.freeze = "conv*,fc1.*";
  const auto head = train_on_digits(3, config)[0];
  EXPECT_EQ(head.executor, ExecutorKind::compiled);
  // fc2 has 1290 parameters of 1199882. Segments are padded for 3 ranks.
  EXPECT_NEAR(whole.gradient_bytes, 4 * 1199882, 1000);
  EXPECT_NEAR(head.gradient_bytes, 4 * 1290, 1000);
  EXPECT_LT(head.bytes_sent_per_rank, 0.4 * whole.bytes_sent_per_rank);
}

TEST(FrozenParametersRun, HasOptimizerStateOfTrainedParametersOnly) {
  const Scratch scratch;
  auto config = small_run(StrategyKind::data_parallel, ExecutorKind::automatic);
  config.model.freeze = "layer*";
  config.output.out = scratch / "run";
  const auto state = train_on_digits(3, config);
  const auto file =
      read_safetensors(scratch / "run/checkpoints/step-00000004/training.safetensors");
  std::vector<std::string> names;
  for (const auto& entry : file.tensors) {
    names.push_back(entry.name);
  }
  EXPECT_THAT(
      names, testing::UnorderedElementsAre(
                 "exp_avg/fc.weight", "exp_avg/fc.bias", "exp_avg_sq/fc.weight",
                 "exp_avg_sq/fc.bias"));
}

TEST(FrozenParametersRun, ResumesWithTheSameBitsOnAnotherNumberOfRanks) {
  const Scratch scratch;
  auto config = small_run(StrategyKind::data_parallel, ExecutorKind::eager);
  config.training.accumulate = 1;
  config.exec.precision = Precision::fp64;
  config.model.freeze = "layer1.*";
  config.optimizer.lr_factor = "fc.*=2";
  config.output.out = scratch / "whole";
  config.output.checkpoint_every = 3;
  config.output.keep_checkpoints = 0;
  const auto whole = train_on_digits(3, config)[0].parameters_sha256;
  config.output.out = scratch / "parts";
  config.output.resume = scratch / "whole/checkpoints/step-00000003";
  EXPECT_EQ(train_on_digits(3, config)[0].parameters_sha256, whole);
}

// In PyTorch too, a frozen batch norm in training mode normalizes by the batch and
// updates its running statistics.
TEST(FrozenParametersRun, UpdatesTheRunningStatisticsOfFrozenBatchNorm) {
  for (const auto executor : {ExecutorKind::eager, ExecutorKind::compiled}) {
    const Scratch scratch;
    auto config = small_run(StrategyKind::data_parallel, executor);
    config.model.freeze = "layer*";
    config.output.out = scratch / "run";
    train_on_digits(1, config);
    const auto state = by_name(read_weights(scratch / "run"));
    EXPECT_FALSE(state.at("layer1.1.running_mean").equal(at::zeros({16})));
    EXPECT_GT(state.at("layer2.1.num_batches_tracked").item<int64_t>(), 0);
  }
}

struct SmallNet : torch::nn::Module {
  SmallNet() {
    // Thread ranks share LibTorch's generator.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    torch::manual_seed(5);
    conv = register_module(
        "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).stride(2)));
    fc = register_module("fc", torch::nn::Linear(4 * 13 * 13, 10));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return fc(torch::relu(conv(x)).flatten(1));
  }
  torch::nn::Conv2d conv = nullptr;
  torch::nn::Linear fc = nullptr;
};

TEST(FrozenParametersRun, AModuleWithoutRequiresGradTrainsAsWithFreeze) {
  const auto train_module = [](bool in_module, int64_t accumulate, StrategyKind kind) {
    auto config = small_run(kind, ExecutorKind::eager);
    config.training.accumulate = accumulate;
    config.model.kind = ModelKind::custom;
    config.model.freeze = in_module ? "" : "conv.*";
    return on_each_rank("thread", 2, [&](Communicator& comm) {
      auto net = std::make_shared<SmallNet>();
      net->conv->weight.set_requires_grad(!in_module);
      net->conv->bias.set_requires_grad(!in_module);
      return train(config, hundred_digits(), comm, make_module_model(net))
          .parameters_sha256;
    });
  };
  const auto expected = train_module(false, 1, StrategyKind::data_parallel);
  EXPECT_EQ(train_module(true, 1, StrategyKind::data_parallel), expected);
  EXPECT_EQ(
      train_module(true, 2, StrategyKind::pipeline),
      train_module(false, 2, StrategyKind::pipeline));
}

// --- parameter groups ---

// SGD without momentum, in which a factor of 0.5 is exact.
RunConfig sgd_run(double lr, double weight_decay) {
  auto config = small_run(StrategyKind::data_parallel, ExecutorKind::eager);
  config.training.epochs = 1;
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.lr = lr;
  config.optimizer.weight_decay = weight_decay;
  return config;
}

std::string hash_of(const RunConfig& config) {
  return train_on_digits(2, config)[0].parameters_sha256;
}

TEST(Factors, ScaleLearningRateAndWeightDecay) {
  auto config = sgd_run(0.125, 0.0625);
  config.optimizer.lr_factor = "*=0.5";
  config.optimizer.weight_decay_factor = "layer*=0.25,fc.*=0.25";
  EXPECT_EQ(hash_of(config), hash_of(sgd_run(0.0625, 0.015625)));
}

TEST(Factors, ALearningRateOf0KeepsTheBits) {
  const Scratch scratch;
  auto config = sgd_run(0.125, 0.0625);
  config.optimizer.lr_factor = "fc.bias=1,fc.*=0";
  config.output.out = scratch / "run";
  train_on_digits(2, config);
  const auto trained = by_name(read_weights(scratch / "run"));
  for (const auto& [name, tensor] : initial_parameters(config)) {
    EXPECT_EQ(trained.at(name).equal(tensor), name == "fc.weight") << name;
  }
}

TEST(Factors, NoDecayOfBiasesAndNormsCombinesWithFactors) {
  auto config = sgd_run(0.125, 0.0625);
  config.optimizer.decay_bias_and_norm = false;
  auto named = sgd_run(0.125, 0.0625);
  // 0.1 and 1.1 are the batch norms.
  named.optimizer.weight_decay_factor = "*.bias=0,layer?.1.weight=0";
  const auto expected = hash_of(named);
  EXPECT_EQ(hash_of(config), expected);
  EXPECT_NE(hash_of(sgd_run(0.125, 0.0625)), expected);
  config.optimizer.weight_decay_factor = "fc.*=0.5";
  named.optimizer.weight_decay_factor += ",fc.weight=0.5";
  EXPECT_EQ(hash_of(config), hash_of(named));
}

// --- initial weights ---

TEST(InitSkip, SkippedTensorsKeepTheirRandomValues) {
  const Scratch scratch;
  ModelOptions other;
  other.seed = 7;
  other.num_classes = 3;
  auto weights = make_model(ModelKind::convnet_bn, other)->parameters();
  for (const auto& entry : make_model(ModelKind::convnet_bn, other)->buffers()) {
    weights.push_back(entry);
  }
  SafetensorsFile file;
  file.tensors = weights;
  write_safetensors(scratch / "init.safetensors", file);
  auto config = small_run(StrategyKind::data_parallel, ExecutorKind::automatic);
  config.training.epochs = 0;
  config.model.init = scratch / "init.safetensors";
  config.output.out = scratch / "run";
  expect_error<ConfigError>(
      [&] { train_on_digits(2, config); }, {"'fc.weight' of shape 3x1568"});
  config.model.init_skip = "fc.*";
  train_on_digits(2, config);
  const auto found = by_name(read_weights(scratch / "run"));
  const auto own = by_name(initial_parameters(config));
  for (const auto& [name, tensor] : weights) {
    const bool skipped = name.rfind("fc.", 0) == 0;
    EXPECT_TRUE(found.at(name).equal(skipped ? own.at(name) : tensor)) << name;
  }
}

// --- errors ---

TEST(FineTuning, PatternsWithoutMatchAndFreezingAllAreErrors) {
  const auto refused = [](const std::string& what, auto change) {
    auto config = small_run(StrategyKind::data_parallel, ExecutorKind::automatic);
    change(config);
    expect_error<ConfigError>([&] { train_on_digits(2, config); }, {what});
  };
  refused(
      "freeze has the pattern 'layer3.*', which matches no tensor, did you mean "
      "'layer1.*'?; change --freeze",
      [](RunConfig& config) { config.model.freeze = "fc.bias,layer3.*"; });
  // Buffers are not trained.
  refused("freeze has the pattern '*.running_mean'", [](RunConfig& config) {
    config.model.freeze = "*.running_mean";
  });
  refused("all 10 parameters are frozen", [](RunConfig& config) {
    config.model.freeze = "layer*,fc.*";
  });
  refused("lr_factor has the pattern 'head.*'", [](RunConfig& config) {
    config.optimizer.lr_factor = "head.*=2";
  });
  refused("weight_decay_factor has the pattern 'fc'", [](RunConfig& config) {
    config.optimizer.weight_decay_factor = "fc=2";
  });
  refused("lr_factor has the entry 'fc.*'", [](RunConfig& config) {
    config.optimizer.lr_factor = "fc.*";
  });
  refused("init_skip is 'fc.*', but init is empty", [](RunConfig& config) {
    config.model.init_skip = "fc.*";
  });
}

}  // namespace tandem::fine_tuning_test
