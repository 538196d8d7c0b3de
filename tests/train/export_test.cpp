// Trained networks that PyTorch runs: files of write_pt2() from checkpoints.

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/formats/safetensors.h"
#include "tandem/graph/pt2.h"
#include "tandem/graph/pt2_writer.h"
#include "tandem/train/checkpoint_model.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/graph/fixtures.h"
#include "tests/parity/python.h"
#include "tests/train/noise.h"

namespace tandem::export_test {

// Trains two steps on three ranks. Returns the path of the checkpoint.
std::string train_network(
    const Scratch& scratch, const std::string& name, RunConfig config,
    const Dataset& data) {
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.lr = 0.05;
  config.ranks.kind = RankKind::thread;
  config.training.batch_size = 2;
  config.training.epochs = 1;
  config.output.out = scratch / ("run-" + name);
  run_backend("thread", 3, [&](Communicator& comm) {
    train(config, DatasetSplits{data, data}, comm);
  });
  return config.output.out;
}

std::string train_file(
    const Scratch& scratch, const std::string& name, const std::string& path,
    Precision precision) {
  RunConfig config;
  config.model.kind = ModelKind::file;
  config.model.file = path;
  config.exec.precision = precision;
  return train_network(scratch, name, config, noise_for(read_pt2(path), 12));
}

std::string train_built_in(const Scratch& scratch, ModelKind kind) {
  RunConfig config;
  config.model.kind = kind;
  config.exec.precision = Precision::fp32;
  return train_network(
      scratch, std::string("built-in-") + name_of(kind), config,
      noise({1, 28, 28}, 10, 12));
}

// Writes the files of a name for check_export.py, except for NAME-original.pt2.
void write_case(
    const Scratch& scratch, const std::string& name, const std::string& checkpoint) {
  const auto loaded = load_checkpoint_graph(checkpoint);
  const Graph& graph = *loaded.model->graph();
  write_pt2(scratch / (name + ".pt2"), graph);
  std::filesystem::copy_file(model_file(checkpoint), scratch / (name + ".safetensors"));
  const Value& input = graph.value(graph.input);
  const auto batch = fixture_images(sizes_of(input.shape), 0).to(input.dtype);
  ForwardContext context;
  context.training = false;
  const auto output = loaded.model->forward(batch, context).detach();
  write_safetensors(
      scratch / (name + "-batch.safetensors"),
      {{{"input", batch}, {"output", output}}, {}});
}

TEST(ExportedPt2, PyTorchComputesTheBitsOfTheOriginalAndEvaluatesAsTandem) {
  if (!file_exists(newest_python())) {
    GTEST_SKIP()
        << "no PyTorch of PyPI; scripts/setup --torchrun, then scripts/test -R "
           "ExportedPt2";
  }
  const Scratch scratch;
  std::vector<std::string> arguments = {
      source_dir() + "/tests/graph/check_export.py", scratch.path()};
  auto networks = kNetworks;
  networks.emplace_back("net");
  for (const auto& network : networks) {
    const auto path = unpack_fixture(scratch, network + "-2.15.0.pt2");
    const auto run = train_file(
        scratch, network, path, network == "net" ? Precision::fp32 : Precision::fp64);
    std::filesystem::rename(path, scratch / (network + "-original.pt2"));
    write_case(scratch, network, run);
    arguments.push_back(network);
  }
  for (const auto& choice : choices<ModelKind>()) {
    if (is_built_in(choice.value) &&
        choice.name == std::string(name_of(choice.value))) {
      const std::string name = std::string("built-in-") + choice.name;
      write_case(scratch, name, train_built_in(scratch, choice.value));
      arguments.push_back(name);
    }
  }
  const auto result = checked(run_python(arguments, newest_python()));
  EXPECT_EQ(
      std::count(result.output.begin(), result.output.end(), '\n'),
      static_cast<int64_t>(arguments.size()) - 2)
      << result.output;
}

TEST(ExportedPt2, TandemContinuesToTrainTheFile) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "residual-2.8.0.pt2");
  const auto run = train_file(scratch, "first", path, Precision::fp64);
  const auto loaded = load_checkpoint_graph(run);
  write_pt2(scratch / "trained.pt2", *loaded.model->graph());
  for (const auto& init : {std::string(), model_file(run)}) {
    RunConfig config;
    config.model.kind = ModelKind::file;
    config.model.file = init.empty() ? scratch / "trained.pt2" : path;
    config.model.init = init;
    config.exec.precision = Precision::fp64;
    train_network(
        scratch, init.empty() ? "second" : "third", config,
        noise_for(read_pt2(path), 12));
  }
  const auto second = read_safetensors(model_file(scratch / "run-second")).tensors;
  const auto third = read_safetensors(model_file(scratch / "run-third")).tensors;
  ASSERT_EQ(second.size(), third.size());
  for (size_t i = 0; i < second.size(); ++i) {
    EXPECT_EQ(second[i].name, third[i].name);
    EXPECT_TRUE(second[i].tensor.equal(third[i].tensor)) << second[i].name;
  }
}

torch::jit::Module script_of(const std::string& forward) {
  torch::jit::Module module("net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("weight", at::ones({5, 12}).set_requires_grad(true), false);
  module.define("def forward(self, x):\n" + forward);
  return module;
}

std::string train_script(const Scratch& scratch, const std::string& forward) {
  script_of(forward).save(scratch / "net.pt");
  RunConfig config;
  config.model.kind = ModelKind::file;
  config.model.file = scratch / "net.pt";
  config.exec.precision = Precision::fp32;
  return train_network(scratch, "script", config, noise({3, 2, 2}, 5, 12));
}

TEST(CheckpointGraph, ATorchScriptModuleIsRecorded) {
  const Scratch scratch;
  const auto run = train_script(
      scratch, "  return torch.linear(x.flatten(1), self.weight).tanh()\n");
  expect_error<ConfigError>(
      [&] { return load_checkpoint_graph(run); },
      {run + "/network.pt' is TorchScript"});
  const auto loaded = load_checkpoint_graph(run, "", CheckpointWeights::own, true);
  write_pt2(scratch / "net.pt2", *loaded.model->graph());
  const auto again = parameters_of(read_pt2(scratch / "net.pt2"));
  ASSERT_EQ(again.size(), 1);
  EXPECT_TRUE(
      again[0].tensor.equal(read_safetensors(model_file(run)).tensors[0].tensor));
}

TEST(CheckpointGraph, AScriptWithoutGraphIsAnErrorWithTheReason) {
  const Scratch scratch;
  const auto run = train_script(
      scratch,
      "  y = torch.linear(x.flatten(1), self.weight)\n"
      "  if x.size(0) == 2:\n    y = y + 1\n  return y\n");
  expect_error<ConfigError>(
      [&] { return load_checkpoint_graph(run, scratch / "net.pt"); },
      {run, "has no graph: ", "NET.safetensors"});
}

TEST(CheckpointGraph, AModelOfAProgramIsAnError) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "tied-2.15.0.pt2");
  const auto data = noise_for(read_pt2(path), 12);
  RunConfig config;
  config.model.kind = ModelKind::custom;
  config.ranks.kind = RankKind::thread;
  config.output.out = scratch / "run";
  run_backend("thread", 1, [&](Communicator& comm) {
    const auto weight = at::ones({5, 64}).set_requires_grad(true);
    train(
        config, DatasetSplits{data, data}, comm,
        make_function_model(
            [weight](const at::Tensor& x) { return x.flatten(1).matmul(weight.t()); },
            {{"weight", weight}}));
  });
  expect_error<ConfigError>(
      [&] { return load_checkpoint_graph(scratch / "run"); },
      {"a module of its program", "--model NET.pt2"});
  EXPECT_EQ(
      error_of<ConfigError>([&] { return load_checkpoint_graph(scratch / "run"); }),
      error_of<ConfigError>([&] { return evaluate_checkpoint(scratch / "run"); }));
  expect_error<ConfigError>(
      [&] { return load_checkpoint_graph(scratch / "run", path); },
      {"'encode.weight'", "belongs to another model"});
}

TEST(CheckpointGraph, ANetworkFileMustBeThatOfTheTraining) {
  const Scratch scratch;
  const auto run = train_file(
      scratch, "tied", unpack_fixture(scratch, "tied-2.15.0.pt2"), Precision::fp32);
  const auto other = unpack_fixture(scratch, "tied-2.11.0.pt2");
  expect_error<ConfigError>(
      [&] { return load_checkpoint_graph(run, other); }, {other, "SHA-256"});
  expect_error<ConfigError>(
      [&] {
        return load_checkpoint_graph(
            train_built_in(scratch, ModelKind::simplenet), other);
      },
      {other, "simplenet", "leave out --model"});
}

}  // namespace tandem::export_test
