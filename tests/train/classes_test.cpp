// Comparison of a model's outputs with the classes of the data, before the first step.

#include <ATen/ops/cross_entropy_loss.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/model/graph_model.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"
#include "tests/graph/graphs.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::classes_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunConfig config_of(StrategyKind strategy = StrategyKind::data_parallel) {
  RunConfig config = thread_config(ModelKind::custom, 2);
  config.strategy.kind = strategy;
  config.strategy.stages = strategy == StrategyKind::pipeline ? 2 : 0;
  return config;
}

// One linear layer for 8 x 8 images; `steps` counts its backward passes.
std::unique_ptr<Model> function_model(
    int64_t num_outputs, std::shared_ptr<int> steps = std::make_shared<int>(0)) {
  auto weight = at::zeros({64, num_outputs}).set_requires_grad(true);
  weight.register_hook([steps](const at::Tensor&) { ++*steps; });
  return make_function_model(
      [weight](const at::Tensor& x) { return x.flatten(1).matmul(weight); },
      {{"weight", weight}});
}

std::unique_ptr<Model> layered_model(int64_t num_outputs) {
  return make_layered_model(
      {flatten(), linear("a", 64, 8), relu(), linear("b", 8, num_outputs)}, {});
}

// 32 samples for training, 8 for the test, of 5 classes.
DatasetSplits data_of_5_classes() {
  return {noise_images(32), noise_images(8)};
}

std::string error_on_2_ranks(
    const RunConfig& config, const std::function<std::unique_ptr<Model>()>& make) {
  const auto data = data_of_5_classes();
  return error_of<ConfigError>([&] {
    run_ranks(2, [&](Communicator& comm) { train(config, data, comm, make()); });
  });
}

const auto kTooFew = AllOf(
    HasSubstr("[model] the number of outputs is 4, expected 5"),
    HasSubstr("give the last layer 5 outputs"));

TEST(Classes, FewerOutputsThanClassesAreAnErrorBeforeTheFirstStep) {
  const auto steps = std::make_shared<int>(0);
  EXPECT_THAT(
      error_on_2_ranks(config_of(), [&] { return function_model(4, steps); }), kTooFew);
  EXPECT_EQ(*steps, 0);
}

TEST(Classes, FewerOutputsOfALayeredModelAreAnErrorInEveryStrategy) {
  for (const auto strategy : {StrategyKind::data_parallel, StrategyKind::pipeline}) {
    SCOPED_TRACE(name_of(strategy));
    EXPECT_THAT(
        error_on_2_ranks(config_of(strategy), [] { return layered_model(4); }),
        kTooFew);
  }
}

TEST(Classes, MoreOutputsThanClassesAreAWarning) {
  for (const bool layered : {false, true}) {
    SCOPED_TRACE(layered ? "layered" : "function");
    // A warning comes once per process.
    const int64_t outputs = layered ? 7 : 8;
    testing::internal::CaptureStderr();
    const auto comm = make_single_communicator();
    train(
        config_of(), data_of_5_classes(), *comm,
        layered ? layered_model(outputs) : function_model(outputs));
    EXPECT_THAT(
        testing::internal::GetCapturedStderr(),
        HasSubstr(
            std::to_string(outputs - 5) +
            " outputs have no class, and training makes them small: the model has " +
            std::to_string(outputs) + " outputs, the data has 5 classes"));
  }
}

// A network whose vocabulary has 9 tokens, of which 5 occur in the training and 7 in
// the evaluation.
TEST(Classes, OfTokensAreThoseOfTheNetworkIfItHasMore) {
  const auto tokens = [](int64_t modulus) {
    const auto token = [=](int64_t i) { return i % modulus; };
    auto data = dataset_of(
        16, make_samples<int64_t>({4}, 16, token),
        make_samples<int64_t>({4}, 16, token));
    data.num_classes = modulus;
    return data;
  };
  const auto make = [] {
    GraphBuilder builder({4});
    builder.graph().values[0].dtype = at::kLong;
    builder.call(
        "aten::embedding", "",
        {Argument::of_value(builder.state("weight", waves({9, 9}))),
         Argument::of_value(builder.input())},
        {4, 9});
    return make_graph_model(builder.trainable());
  };
  const Scratch scratch;
  auto config = config_of();
  config.exec.executor = ExecutorKind::eager;
  config.output.out = scratch / "run";
  testing::internal::CaptureStderr();
  const auto comm = make_single_communicator();
  train(config, {tokens(5), tokens(5)}, *comm, make());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("have no class")));
  const auto path = model_file(newest_checkpoint(scratch / "run/checkpoints"));
  EXPECT_EQ(load_model_state(path, nullptr).at("num_classes"), "9");
  CheckpointEvaluation options;
  options.dataset = tokens(7);
  EXPECT_EQ(evaluate_checkpoint(scratch / "run", options, make()).count, 64);
}

// The first samples may lack a class.
TEST(Classes, AreTheDeclaredClassesOfTheDataSet) {
  auto data = data_of_5_classes();
  data.train.num_classes = data.test.num_classes = 6;
  const auto comm = make_single_communicator();
  expect_error<ConfigError>(
      [&] { train(config_of(), data, *comm, function_model(5)); },
      {"outputs is 5, expected 6"});
}

TEST(Classes, AnOutputWithoutARowPerSampleIsAnError) {
  const auto comm = make_single_communicator();
  auto weight = at::zeros({8, 5}).set_requires_grad(true);
  expect_error<ConfigError>(
      [&] {
        train(
            config_of(), data_of_5_classes(), *comm,
            make_function_model(
                [weight](const at::Tensor& x) { return x.matmul(weight); },
                {{"weight", weight}}));
      },
      {"the shape of the output is [8, 1, 8, 5], expected [8, 5]"});
}

TEST(Classes, AProgramsOwnLossAcceptsAnyOutputs) {
  const auto comm = make_single_communicator();
  CustomParts own(function_model(1));
  own.loss = [](const at::Tensor& outputs, const at::Tensor& targets) {
    return (outputs.squeeze(1) - targets).square().sum();
  };
  EXPECT_EQ(train(config_of(), data_of_5_classes(), *comm, std::move(own)).steps, 4);
}

TEST(Samples, MismatchWithTheDescriptionIsAnErrorBeforeTheFirstStep) {
  struct Case {
    std::function<void(DatasetSplits&)> change;
    std::string says;
  };
  const auto label_6 = [](Dataset& data) {
    std::vector<uint8_t> labels(data.targets.bytes.begin(), data.targets.bytes.end());
    labels[3] = 6;
    data.targets.bytes = labels;
  };
  const std::vector<Case> cases = {
      {[&](auto& data) { label_6(data.train); },
       "label 3 of 'mine' is 6, expected less"},
      {[&](auto& data) { label_6(data.test); },
       "label 3 of 'test' is 6, expected less"},
      {[](auto& data) { data.train.num_classes = 0; }, "expected less than 0"},
      {[](auto& data) { data.train.size = 33; }, "inputs of 'mine' have 2048 bytes"},
      {[](auto& data) { data.test.targets.bytes = Bytes(); },
       "targets of 'test' have 0 bytes"}};
  for (const auto& [change, says] : cases) {
    auto data = data_of_5_classes();
    data.train.name = "mine";
    data.test.name = "test";
    change(data);
    const auto comm = make_single_communicator();
    expect_error<ConfigError>(
        [&] { train(config_of(), data, *comm, function_model(5)); }, {"[data] ", says});
  }
}

}  // namespace tandem::classes_test
