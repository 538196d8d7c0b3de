// Trained networks that a program loads for predictions.

#include "tandem/train/predictor.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <future>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/formats/safetensors.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/trainer.h"
#include "tests/core/expect.h"
#include "tests/graph/fixture_files.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem::predictor_test {

using testing::ElementsAre;

constexpr int64_t kSamples = 20;

// A network in TorchScript with dropout, batch norm and a buffer of another type, for
// 8 x 8 images.
constexpr const char* kForward = R"(
    def forward(self, x):
      x = torch.flatten(x, 1)
      x = torch.batch_norm(x, None, None, self.mean, self.var, self.training, 0.1, 1e-5, False)
      x = torch.relu(torch.mm(x, self.first))
      x = torch.mm(torch.dropout(x, 0.5, self.training), self.second)
      return torch.mul(x, self.scale.to(x.dtype))
  )";

void save_script(const std::string& path) {
  torch::jit::Module module("net");
  module.register_attribute("training", c10::BoolType::get(), true);
  const auto weight = [](int64_t rows, int64_t columns) {
    return at::randn({rows, columns}).mul_(0.1).set_requires_grad(true);
  };
  module.register_buffer("mean", at::zeros({64}));
  module.register_buffer("var", at::zeros({64}).add_(1));
  module.register_buffer("scale", at::zeros({5}, at::kDouble).add_(2));
  module.register_parameter("first", weight(64, 12), false);
  module.register_parameter("second", weight(12, 5), false);
  module.define(kForward);
  module.save(path);
}

// A function with the parameters of a program's own model.
std::unique_ptr<Model> make_own_model() {
  auto weight = at::randn({64, 5}).mul_(0.1).set_requires_grad(true);
  return make_function_model(
      [weight](const at::Tensor& x) { return x.flatten(1).mm(weight); },
      {{"weight", weight}});
}

struct Network {
  std::string name;
  ModelKind kind = ModelKind::custom;
  // Adds the settings of a network file.
  std::function<void(const Scratch&, RunConfig&)> prepare = {};
};

Network built_in(ModelKind kind) {
  return {name_of(kind), kind};
}

const std::vector<Network> kNetworks = {
    built_in(ModelKind::simplenet),
    built_in(ModelKind::net),
    built_in(ModelKind::convnet_bn),
    // Needs pixels at the borders.
    built_in(ModelKind::lenet3x3),
    {"exported", ModelKind::file,
     [](const Scratch& scratch, RunConfig& config) {
       config.model.file = unpack_fixture(scratch, "residual-2.15.0.pt2");
     }},
    {"script", ModelKind::file,
     [](const Scratch& scratch, RunConfig& config) {
       config.model.file = scratch / "network.pt";
       save_script(config.model.file);
     }},
    {"own", ModelKind::custom}};

// Trains for one epoch of `data`, with the program's own model if the kind is custom.
void save_run(const std::string& out, const RunConfig& config, const Dataset& data) {
  RunConfig all = config;
  all.training.batch_size = 10;
  all.training.epochs = 1;
  all.output.out = out;
  (void)train(
      all, {data, data}, *make_single_communicator(),
      config.model.kind == ModelKind::custom ? make_own_model() : nullptr);
}

class TrainedNetwork : public testing::TestWithParam<Network> {
 protected:
  void SetUp() override {
    RunConfig config;
    config.model.kind = GetParam().kind;
    if (GetParam().prepare) {
      GetParam().prepare(scratch_, config);
    }
    config.data.mean = 0.3;
    config.data.std = 0.7;
    data_ = GetParam().name == "exported" ? large_images() : noise_images(kSamples);
    save_run(run_, config, data_);
  }

  // Noise of 3 x 16 x 16 pixels, which the exported network accepts.
  static Dataset large_images() {
    Dataset data = noise_images(kSamples * 12);
    data.size = kSamples;
    data.inputs.shape = {3, 16, 16};
    return data;
  }

  std::unique_ptr<Model> own() const {
    return GetParam().kind == ModelKind::custom ? make_own_model() : nullptr;
  }

  at::Tensor images() const {
    return at::from_blob(
        const_cast<uint8_t*>(data_.inputs.bytes.data()),
        {data_.size, data_.inputs.shape[0], data_.inputs.shape[1],
         data_.inputs.shape[2]},
        at::kByte);
  }

  const Scratch scratch_;
  const std::string run_ = scratch_ / "run";
  Dataset data_;
};

TEST_P(TrainedNetwork, HasTheInputsAndOutputsOfTheEvaluation) {
  const Predictor predictor = load_model(run_, own(), CheckpointWeights::own, true);
  CheckpointEvaluation options;
  options.dataset = data_;
  options.batch_size = kSamples;
  options.trusts_scripts = true;
  at::Tensor inputs;
  at::Tensor outputs;
  options.after_batch = [&](const EvaluatedBatch& evaluated) {
    inputs = evaluated.batch.inputs.clone();
    outputs = evaluated.output.clone();
  };
  (void)evaluate_checkpoint(run_, options, own());
  EXPECT_TRUE(predictor.preprocess(images()).equal(inputs));
  const auto found = predictor(inputs);
  EXPECT_TRUE(at::allclose(found, outputs, 1e-5, 1e-6)) << found << outputs;
  EXPECT_FALSE(found.requires_grad());
  EXPECT_EQ(predictor.sample_shape(), data_.inputs.shape);
  EXPECT_THAT(predictor.class_names(), ElementsAre("0", "1", "2", "3", "4"));
}

TEST_P(TrainedNetwork, FourThreadsGetTheOutputsOfOneThread) {
  const Predictor predictor = load_model(run_, own(), CheckpointWeights::own, true);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  for (int64_t i = 0; i + 4 <= kSamples; i += 4) {
    inputs.push_back(predictor.preprocess(images().slice(0, i, i + 4)));
    outputs.push_back(predictor(inputs.back()));
  }
  std::vector<std::future<bool>> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.push_back(std::async(std::launch::async, [&, thread] {
      bool equal = true;
      for (size_t i = 0; i < 40; ++i) {
        const size_t at = (i + thread) % inputs.size();
        equal = equal && predictor(inputs[at]).equal(outputs[at]);
      }
      return equal;
    }));
  }
  for (auto& thread : threads) {
    EXPECT_TRUE(thread.get());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Predictor, TrainedNetwork, testing::ValuesIn(kNetworks),
    [](const auto& network) { return network.param.name; });

TEST(LoadModel, HasTheNamesOfTheClasses) {
  const Scratch scratch;
  RunConfig config;
  config.model.kind = ModelKind::simplenet;
  Dataset data = noise_images(kSamples);
  data.class_names = {"cat", "dog", "owl", "bee", "eel"};
  save_run(scratch / "run", config, data);
  EXPECT_THAT(
      load_model(scratch / "run").class_names(),
      ElementsAre("cat", "dog", "owl", "bee", "eel"));
}

TEST(LoadModel, KeepsFloat64) {
  const Scratch scratch;
  RunConfig config;
  config.model.kind = ModelKind::simplenet;
  config.exec.precision = Precision::fp64;
  save_run(scratch / "run", config, noise_images(kSamples));
  const auto predictor = load_model(scratch / "run");
  const auto inputs = predictor.preprocess(at::zeros({2, 1, 8, 8}, at::kByte));
  EXPECT_EQ(predictor(inputs).scalar_type(), at::kDouble);
}

// Rows of 4 columns, and 2 values as targets.
Dataset table_of(int64_t size) {
  Dataset data;
  data.size = size;
  std::vector<float> inputs;
  for (int64_t i = 0; i < size * 4; ++i) {
    inputs.push_back(static_cast<float>(i * 7 % 13));
  }
  data.inputs = {ElementType::float32, {4}, inputs};
  data.targets = {
      ElementType::float32, {2}, std::vector<float>(inputs.begin(), inputs.end())};
  data.num_classes = 2;
  data.class_names = {"price", "weight"};
  return data;
}

TEST(LoadModel, NormalizesNumbersByColumn) {
  const Scratch scratch;
  RunConfig config;
  config.model.kind = ModelKind::simplenet;
  config.data.mean = std::vector<double>{1, 2, 3, 4};
  config.data.std = std::vector<double>{2, 4, 8, 16};
  const Dataset data = table_of(kSamples);
  save_run(scratch / "run", config, data);
  const auto predictor = load_model(scratch / "run");
  EXPECT_THAT(predictor.sample_shape(), ElementsAre(4));
  EXPECT_THAT(predictor.class_names(), ElementsAre("price", "weight"));
  const auto rows =
      at::tensor({3.F, 10.F, -5.F, 4.F, 1.F, 2.F, 3.F, 36.F}).view({2, 4});
  const auto inputs = predictor.preprocess(rows);
  EXPECT_TRUE(
      inputs.equal(at::tensor({1.F, 2.F, -1.F, 0.F, 0.F, 0.F, 0.F, 2.F}).view({2, 4})));
  const auto weights = read_safetensors(model_file(scratch / "run")).tensors;
  EXPECT_TRUE(at::allclose(
      predictor(inputs), at::linear(inputs, weights[0].tensor, weights[1].tensor), 1e-6,
      1e-6));
  expect_error<ConfigError>(
      [&] { (void)predictor.preprocess(rows.to(at::kByte)); },
      {"expected float32 on the CPU of shape [samples, 4]"});
  expect_error<DataError>(
      [&] { (void)predictor.preprocess(rows.log()); }, {"not finite"});
}

// Predicts one of 3 classes for a sample, or for each of its 6 positions, from indices
// below 5.
std::unique_ptr<Model> make_embedding(bool each_position) {
  auto table = at::randn({5, 3}).set_requires_grad(true);
  return make_function_model(
      [table, each_position](const at::Tensor& x) {
        const auto outputs = at::embedding(table, x);
        return each_position ? outputs : outputs.mean(1);
      },
      {{"table", table}});
}

TEST(LoadModel, KeepsIndices) {
  for (const bool each_position : {false, true}) {
    const Scratch scratch;
    RunConfig config;
    config.model.kind = ModelKind::custom;
    config.training.batch_size = 10;
    config.training.epochs = 1;
    config.output.out = scratch / "run";
    Dataset data;
    data.size = kSamples;
    data.num_classes = 3;
    data.inputs = {ElementType::int64, {6}, std::vector<int64_t>(kSamples * 6, 4)};
    data.targets = {ElementType::int64, {}, std::vector<int64_t>(kSamples * 6, 2)};
    if (each_position) {
      data.targets.shape = {6};
    }
    (void)train(
        config, {data, data}, *make_single_communicator(),
        make_embedding(each_position));
    const auto predictor = load_model(scratch / "run", make_embedding(each_position));
    const auto samples = at::arange(24).remainder(5).view({4, 6});
    const auto inputs = predictor.preprocess(samples);
    EXPECT_TRUE(inputs.equal(samples));
    const auto table = read_safetensors(model_file(scratch / "run")).tensors[0].tensor;
    const auto outputs = at::embedding(table, samples);
    EXPECT_TRUE(predictor(inputs).equal(each_position ? outputs : outputs.mean(1)));
    expect_error<ConfigError>(
        [&] { (void)predictor(samples.to(at::kFloat)); },
        {"expected int64 of shape [samples, 6]"});
  }
}

TEST(LoadModel, RefusesOtherBatches) {
  const Scratch scratch;
  RunConfig config;
  config.model.kind = ModelKind::simplenet;
  save_run(scratch / "run", config, noise_images(kSamples));
  const auto predictor = load_model(scratch / "run");
  const auto bytes = at::zeros({2, 1, 8, 8}, at::kByte);
  expect_error<ConfigError>(
      [&] { (void)predictor(bytes); },
      {"the batch is Byte of shape [2, 1, 8, 8], expected floating point of "
       "shape [samples, 1, 8, 8]"});
  expect_error<ConfigError>(
      [&] {
        (void)predictor(at::zeros({1, 8, 8}));
      },
      {"of shape [1, 8, 8], expected"});
  expect_error<ConfigError>(
      [&] { (void)predictor.preprocess(bytes.to(at::kFloat)); },
      {"expected uint8 on the CPU"});
  expect_error<ConfigError>(
      [&] {
        (void)predictor.preprocess(at::zeros({2, 3, 8, 8}, at::kByte));
      },
      {"[2, 3, 8, 8], expected"});
}

TEST(LoadModel, RefusesPathsAndModelsThatDoNotFit) {
  const Scratch scratch;
  make_directories(scratch / "empty");
  for (const char* name : {"empty", "missing"}) {
    expect_error<DataError>(
        [&] { (void)load_model(scratch / name); }, {scratch / name});
  }
  RunConfig config;
  config.model.kind = ModelKind::custom;
  save_run(scratch / "own", config, noise_images(kSamples));
  expect_error<ConfigError>(
      [&] { (void)load_model(scratch / "own"); },
      {"a module of its program", "pass the module"});
  config.model.kind = ModelKind::net;
  save_run(scratch / "net", config, noise_images(kSamples));
  expect_error<ConfigError>(
      [&] { (void)load_model(scratch / "net", make_own_model()); }, {"weight"});
}

}  // namespace tandem::predictor_test
