// Weights from Python and to Python, checked with PyTorch.

#include "tandem/checkpoint/weights.h"
#include "tandem/data/load_dataset.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_file.h"
#include "tandem/model/model.h"
#include "tandem/train/assembly.h"
#include "tests/core/expect.h"
#include "tests/parity/python.h"
#include "tests/scratch.h"

namespace tandem::weights_test {

using testing::HasSubstr;

std::unique_ptr<Model> model_of(
    const std::string& name, at::ScalarType dtype = at::kFloat) {
  ModelOptions options;
  options.seed = 99;
  options.dtype = dtype;
  options.dropout = false;
  return make_model(*find_choice<ModelKind>(name), options);
}

at::Tensor images(at::ScalarType dtype) {
  return at::randn({16, 1, 28, 28}, at::detail::createCPUGenerator(1), dtype);
}

at::Tensor outputs_of(Model& model, const at::Tensor& inputs) {
  ForwardContext context;
  context.training = false;
  return model.forward(inputs, context).detach();
}

using Arguments = std::vector<std::string>;

Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Returns the command of the peer that writes the outputs of Python's model with these
// weights, loaded with strict=True, to `weights` + ".logits".
Arguments logits_command(
    const std::string& model, const std::string& weights, const std::string& inputs) {
  return {"logits",   "--model", model,   "--weights",        weights,
          "--inputs", inputs,    "--out", weights + ".logits"};
}

at::Tensor logits_of(const std::string& weights) {
  return read_safetensors(weights + ".logits").tensors.at(0).tensor;
}

std::string write_inputs(const Scratch& scratch, const at::Tensor& inputs) {
  auto path = scratch / "inputs.safetensors";
  write_safetensors(path, {{{"inputs", inputs}}, {}});
  return path;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  EXPECT_EQ(a.scalar_type(), b.scalar_type());
  return (a - b).abs().max().item<double>();
}

// --- from tandem to Python ---

struct Way {
  std::string model;
  at::ScalarType dtype;
  double tolerance;
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.model << (way.dtype == at::kDouble ? "_fp64" : "_fp32");
}

class Interop : public testing::TestWithParam<Way> {};

std::string name_of(const testing::TestParamInfo<Way>& info) {
  return testing::PrintToString(info.param);
}

TEST_P(Interop, PythonComputesTheSameOutputsFromCheckpointsAndExports) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto& [name, dtype, tolerance] = GetParam();
  const Scratch scratch;
  const auto model = model_of(name, dtype);
  CheckpointContent content;
  content.state.model = model->state();
  const auto checkpoint = save_checkpoint(scratch.path(), content, {});
  write_torch_file(scratch / "model.pth", content.state.model);

  const auto inputs = images(dtype);
  const auto expected = outputs_of(*model, inputs);
  const auto inputs_file = write_inputs(scratch, inputs);
  const Arguments files = {checkpoint + "/model.safetensors", scratch / "model.pth"};
  Arguments commands;
  for (const auto& file : files) {
    commands = with(commands, with(logits_command(name, file, inputs_file), {"then"}));
  }
  const auto python = checked(
      run_peer(with(commands, {"same", "--first", files[0], "--second", files[1]})));
  EXPECT_THAT(
      python.output,
      HasSubstr(std::to_string(content.state.model.size()) + " tensors"));
  for (const auto& file : files) {
    const double difference = largest_difference(logits_of(file), expected);
    printf("largest difference: %.2g\n", difference);
    EXPECT_LE(difference, tolerance) << file;
  }
}

TEST_P(Interop, WeightsFromPythonGiveTheSameOutputs) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto& [name, dtype, tolerance] = GetParam();
  const Scratch scratch;
  const auto inputs = images(dtype);
  checked(run_peer(with(
      {"save", "--model", name, "--dtype", dtype == at::kDouble ? "float64" : "float32",
       "--out", scratch.path(), "then"},
      logits_command(name, scratch / "state.pt", write_inputs(scratch, inputs)))));
  const auto expected = logits_of(scratch / "state.pt");
  const auto model = model_of(name, dtype);
  EXPECT_GT(largest_difference(outputs_of(*model, inputs), expected), 0.01);
  double largest = 0;
  for (const char* file :
       {"state.pt", "plain.bin", "replica.pt", "parameters.pth", "nested.pt",
        "trainer.pt", "tutorial.pt", "snapshot.pt", "lightning.ckpt", "compiled.pt",
        "strided.pt", "state.safetensors"}) {
    SCOPED_TRACE(file);
    // Removes all values of the last file.
    for (const auto& entry : model->state()) {
      entry.tensor.detach().zero_();
    }
    load_weights(scratch / file, model->state());
    const double difference = largest_difference(outputs_of(*model, inputs), expected);
    EXPECT_LE(difference, tolerance);
    largest = std::max(largest, difference);
  }
  printf("largest difference: %.2g\n", largest);
  // Every format has the bits of the first.
  write_safetensors(scratch / "ours.safetensors", {model->state(), {}});
  checked(run_peer(
      {"same", "--first", scratch / "ours.safetensors", "--second",
       scratch / "state.pt"}));
}

INSTANTIATE_TEST_SUITE_P(
    Weights, Interop,
    testing::Values(
        Way{"net", at::kDouble, 1e-12}, Way{"net", at::kFloat, 1e-5},
        Way{"convnet_bn", at::kDouble, 1e-12}, Way{"convnet_bn", at::kFloat, 1e-5}),
    name_of);

TEST(Weights, AreConvertedToTheModelsDtype) {
  const Scratch scratch;
  const auto narrow = model_of("convnet_bn", at::kFloat);
  write_torch_file(scratch / "float.pt", narrow->state());
  const auto wide = model_of("convnet_bn", at::kDouble);
  for (const auto& entry : wide->state()) {
    entry.tensor.detach().zero_();
  }
  load_weights(scratch / "float.pt", wide->state());
  const auto targets = wide->state();
  const auto sources = narrow->state();
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto& tensor = targets[i].tensor;
    EXPECT_TRUE(tensor.equal(sources[i].tensor.to(tensor.scalar_type())))
        << targets[i].name;
  }
}

TEST(Weights, EveryDtypeRoundTrips) {
  const Scratch scratch;
  std::vector<NamedTensor> tensors;
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
        at::kShort, at::kChar, at::kByte, at::kBool}) {
    const auto value = at::randn({3, 1, 5}).mul_(9).abs().to(dtype);
    tensors.push_back({c10::toString(dtype), value});
  }
  tensors.push_back({"scalar", at::randn({})});
  tensors.push_back({"empty", at::randn({0, 4})});
  tensors.push_back({"transposed", at::randn({3, 4}).t()});
  for (const char* name : {"all.pt", "all.safetensors"}) {
    save_weights(scratch / name, tensors);
    const auto read = read_weights(scratch / name);
    ASSERT_EQ(read.size(), tensors.size());
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i].name, tensors[i].name);
      EXPECT_EQ(read[i].tensor.scalar_type(), tensors[i].tensor.scalar_type());
      EXPECT_TRUE(read[i].tensor.equal(tensors[i].tensor)) << read[i].name;
    }
  }
}

// --- of a torch::nn module ---

// Loads files with strict=True into Python's counterpart of small_net(), and prints the
// sum of its outputs for ones.
constexpr const char* kPythonModule = R"(
import sys, torch
sys.path.insert(0, sys.argv[1])
from peer import load_safetensors
nn = torch.nn
for path in sys.argv[2:]:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4),
                        nn.BatchNorm1d(4, track_running_stats=False)).double()
    safe = path.endswith(".safetensors")
    state = load_safetensors(path) if safe else torch.load(path)
    net.load_state_dict(state, strict=True)
    net.eval()
    rows = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    print(net(rows).abs().sum().item().hex())
)";

torch::nn::Sequential small_net() {
  torch::nn::Sequential net(
      torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
      torch::nn::BatchNorm1d(
          torch::nn::BatchNorm1dOptions(4).track_running_stats(false)));
  net->to(torch::kDouble);
  net->forward(at::randn({5, 3}, at::kDouble));
  return net;
}

TEST(Weights, OfAModuleLoadInPythonAndInAModule) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const Scratch scratch;
  auto net = small_net();
  net->eval();
  const auto inputs = at::arange(6, at::kDouble).reshape({2, 3});
  const auto expected = net->forward(inputs);
  const std::vector<std::string> files = {
      scratch / "net.pt", scratch / "net.pth", scratch / "net.safetensors"};
  std::vector<std::string> command = {
      "-c", kPythonModule, source_dir() + "/tests/parity"};
  for (const auto& file : files) {
    save_weights(file, *net);
    auto other = small_net();
    load_weights(file, *other);
    other->eval();
    EXPECT_TRUE(other->forward(inputs).equal(expected)) << file;
    command.push_back(file);
  }
  const auto python = checked(run_python(command));
  std::istringstream lines(python.output);
  for (size_t i = 0; i < files.size(); ++i) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_NEAR(
        std::strtod(line.c_str(), nullptr), expected.abs().sum().item<double>(), 1e-12);
  }
}

TEST(Weights, ThatCannotBeSavedLeaveTheOldFile) {
  const Scratch scratch;
  const auto ones = at::ones({2});
  for (const char* name : {"net.pt", "net.safetensors"}) {
    const auto file = scratch / name;
    save_weights(file, {{"a", ones}});
    const std::string before = read_file(file);
    const auto refused = [&](const std::vector<NamedTensor>& tensors) {
      const auto error = error_of<ConfigError>([&] { save_weights(file, tensors); });
      EXPECT_EQ(read_file(file), before);
      return error;
    };
    EXPECT_THAT(
        refused({{"a", ones.to(at::kComplexFloat)}}), HasSubstr("ComplexFloat"));
    EXPECT_THAT(refused({{"a", at::Tensor()}}), HasSubstr("'a' is undefined"));
    EXPECT_THAT(refused({{"a", ones}, {"a", ones}}), HasSubstr("'a' occurs twice"));
  }
  expect_error<ConfigError>(
      [&] { save_weights(scratch / "net.bin", {}); },
      {"ends in .pt, .pth or .safetensors"});
  expect_error<DataError>(
      [&] {
        save_weights("/proc/net.pt", {{"a", ones}});
      },
      {"/proc/net.pt"});
  EXPECT_EQ(list_directory(scratch.path()).size(), 2u);
}

// --- in a run ---

DatasetSplits digits() {
  return load_dataset("digits", 8);
}

TEST(Weights, InitLoadsTheInitialWeights) {
  const Scratch scratch;
  const auto expected = model_of("convnet_bn");
  for (const auto& entry : expected->state()) {
    entry.tensor.detach().add_(1);
  }
  write_torch_file(scratch / "start.pt", expected->state());
  RunConfig config;
  config.model.kind = ModelKind::convnet_bn;
  config.model.init = scratch / "start.pt";
  const auto comm = make_single_communicator();
  const auto check = [&](std::unique_ptr<Model> own) {
    const auto data = digits();
    const auto parts = assemble(config, data.train, *comm, std::move(own));
    const auto state = parts.arenas->state();
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(state[i].tensor.equal(expected->state()[i].tensor)) << state[i].name;
    }
  };
  check(nullptr);
  config.model.kind = ModelKind::custom;
  check(model_of("convnet_bn"));
  config.model.dropout = false;
  expect_error<ConfigError>([&] { check(model_of("convnet_bn")); }, {"--no-dropout"});
}

// --- files that are rejected ---

TEST(Weights, WeightsOfAnotherModelAreRejectedAndChangeNothing) {
  const Scratch scratch;
  const auto net = model_of("net");
  const auto refused = [&](const std::string& file, const char* what) {
    const auto target = net->state();
    const auto before = target[0].tensor.detach().clone();
    expect_error<ConfigError>(
        [&] { load_weights(scratch / file, target); }, {what, file});
    EXPECT_TRUE(target[0].tensor.equal(before)) << file;
  };
  write_torch_file(scratch / "other.pt", model_of("convnet_bn")->state());
  refused("other.pt", "no tensor 'conv1.weight'");
  write_torch_file(scratch / "shape.pt", model_of("lenet3x3")->state());
  refused("shape.pt", "'fc1.weight' of shape 128x1600, the model expects 128x9216");
  auto more = net->state();
  more[0].tensor = more[0].tensor.detach() + 1;
  more.push_back({"fc3.bias", at::randn({2})});
  write_torch_file(scratch / "more.pt", more);
  refused("more.pt", "tensor 'fc3.bias' that the model does not have");
  more.erase(more.begin() + 3);
  write_safetensors(scratch / "fewer.safetensors", {more, {}});
  refused("fewer.safetensors", "no tensor 'conv2.bias'");
}

TEST(Weights, PrefixesOfOtherProgramsAreRemoved) {
  const Scratch scratch;
  const auto net = model_of("net");
  const auto target = net->state();
  const auto write = [&](const std::string& prefix, const std::string& last_prefix) {
    auto file = net->state();
    for (auto& [name, tensor] : file) {
      name = prefix + name;
      tensor = tensor.detach() + 1;
    }
    file.back().name = last_prefix + target.back().name;
    write_torch_file(scratch / "file.pt", file);
  };
  for (const std::string prefix :
       {"module.", "_orig_mod.", "model.", "_orig_mod.module.", "model._orig_mod."}) {
    write(prefix, prefix);
    const auto expected = target[0].tensor.detach() + 1;
    load_weights(scratch / "file.pt", target);
    EXPECT_TRUE(target[0].tensor.equal(expected)) << prefix;
  }
  write("model.", "loss.");
  expect_error<ConfigError>(
      [&] { load_weights(scratch / "file.pt", target); },
      {"has no tensor '" + target[0].name + "', but 'model." + target[0].name + "'"});
}

// A network whose own names begin with "model.".
TEST(Weights, PrefixesOfTheNetworkAreKept) {
  const Scratch scratch;
  const std::vector<NamedTensor> target = {
      {"model.a", at::zeros({2})}, {"model.b", at::zeros({2})}};
  write_torch_file(
      scratch / "file.pt", {{"model.a", at::ones({2})}, {"model.b", at::ones({2})}});
  load_weights(scratch / "file.pt", target);
  EXPECT_TRUE(target[1].tensor.equal(at::ones({2})));
  write_torch_file(
      scratch / "file.pt",
      {{"module.model.a", at::ones({2}) * 2}, {"module.model.b", at::ones({2}) * 2}});
  load_weights(scratch / "file.pt", target);
  EXPECT_TRUE(target[1].tensor.equal(at::ones({2}) * 2));
}

TEST(Weights, ThatAreNotFiniteAreRejected) {
  const Scratch scratch;
  auto weight = at::zeros({2}).set_requires_grad(true);
  const auto mask = at::zeros({2});
  const double infinity = std::numeric_limits<double>::infinity();
  const auto load = [&](double in_weight, double in_mask) {
    write_torch_file(
        scratch / "file.pt",
        {{"weight", at::full({2}, in_weight)}, {"mask", at::full({2}, in_mask)}});
    return error_of<DataError>([&] {
      load_weights(scratch / "file.pt", {{"weight", weight}, {"mask", mask}});
    });
  };
  EXPECT_THAT(load(std::nan(""), 1), HasSubstr("tensor 'weight'"));
  EXPECT_THAT(load(infinity, 1), HasSubstr("a value that is not finite"));
  EXPECT_THAT(load(1, std::nan("")), HasSubstr("tensor 'mask'"));
  EXPECT_EQ(load(1, -infinity), "(no error)");
}

TEST(Weights, SkippedTensorsMayHaveAnotherShapeOrBeOnOneSideOnly) {
  const Scratch scratch;
  const auto net = model_of("net");
  const auto target = net->state();
  std::vector<NamedTensor> file = {{"head.scale", at::randn({2})}};
  for (const auto& [name, tensor] : target) {
    if (name != "fc2.bias") {
      file.push_back({name, name == "fc2.weight" ? at::randn({3}) : tensor + 1});
    }
  }
  write_torch_file(scratch / "file.pt", file);
  std::vector<at::Tensor> before;
  for (const auto& entry : target) {
    before.push_back(entry.tensor.detach().clone());
  }
  load_weights(scratch / "file.pt", target, {"fc2.*", "head.*"});
  for (size_t i = 0; i < target.size(); ++i) {
    const bool skipped = target[i].name.rfind("fc2.", 0) == 0;
    EXPECT_TRUE(target[i].tensor.equal(skipped ? before[i] : before[i] + 1))
        << target[i].name;
  }
  expect_error<ConfigError>(
      [&] { load_weights(scratch / "file.pt", target, {"fc2.*"}); },
      {"'head.scale' that the model does not have"});
  expect_error<ConfigError>(
      [&] {
        load_weights(scratch / "file.pt", target, {"fc2.*", "heat.*"});
      },
      {"init_skip has the pattern 'heat.*', which matches no tensor, did you "
       "mean 'head.*'?"});
}

TEST(Weights, FilesWithoutAStateDictAreRejected) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const Scratch scratch;
  checked(run_peer({"save", "--out", scratch.path()}));
  replace_file(scratch / "text.pt", "weights, but as a text\n");
  replace_file(scratch / "short.pt", "PK");
  replace_file(scratch / "empty.pt", "");
  replace_file(scratch / "zip.pt", std::string("PK\5\6") + std::string(18, '\0'));
  const std::string whole = read_file(scratch / "state.pt");
  for (size_t part = 1; part < 8; ++part) {
    replace_file(
        scratch / ("cut" + std::to_string(part) + ".pt"),
        whole.substr(0, whole.size() * part / 8));
  }
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"text.pt", "is not a checkpoint"},
      {"empty.pt", "is not a checkpoint"},
      {"short.pt", "is not a checkpoint"},
      {"zip.pt", "is a zip file, but not from torch.save"},
      {"cut1.pt", "is damaged"},
      {"cut2.pt", "is damaged"},
      {"cut3.pt", "is damaged"},
      {"cut4.pt", "is damaged"},
      {"cut5.pt", "is damaged"},
      {"cut6.pt", "is damaged"},
      {"cut7.pt", "is damaged"},
      {"old.pt", "before PyTorch 1.6"},
      {"list.pt", "not contain a dict"},
      {"module.pt", "not contain a dict"},
      {"numbers.pt", "'epoch' that is not"},
      {"script.pt", "not contain a dict"},
      {"nosuch.pt", "cannot read"}};
  for (const auto& [file, what] : cases) {
    expect_error<DataError>(
        [&, &file = file] { return read_weights(scratch / file); }, {what, file});
  }
}

// A pickle that calls os.system() when Python loads it.
TEST(Weights, PicklesRunNoCode) {
  const Scratch scratch;
  const std::string file = scratch / "ran";
  const std::string pickle =
      "\x80\x02"
      "cposix\nsystem\nX" +
      std::string(1, static_cast<char>(file.size() + 6)) + std::string(3, '\0') +
      "touch " + file + "\x85R.";
  {
    caffe2::serialize::PyTorchStreamWriter writer(scratch / "bad.pt");
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    writer.writeEndOfFile();
  }
  EXPECT_THAT(
      error_of<DataError>([&] { read_torch_file({scratch / "bad.pt"}); }),
      HasSubstr("bad.pt"));
  EXPECT_FALSE(file_exists(file));
}

// A zip file with correct checksums: the pickle of a good file with one changed byte.
TEST(Weights, DamagedPicklesAreReadOrRejected) {
  const Scratch scratch;
  write_torch_file(
      scratch / "good.pt",
      {{"a", at::randn({2, 3})}, {"b", at::randn({4}).to(at::kLong)}});
  caffe2::serialize::PyTorchStreamReader archive(scratch / "good.pt");
  const auto [data, size] = archive.getRecord("data.pkl");
  const std::string good(static_cast<const char*>(data.get()), size);
  const std::string storage(64, 'x');
  int64_t refused = 0;
  for (size_t at = 0; at < size; ++at) {
    for (const char value : {'\0', '\xff', 't', 'R'}) {
      std::string bad = good;
      bad[at] = value;
      {
        caffe2::serialize::PyTorchStreamWriter writer(scratch / "bad.pt");
        writer.writeRecord("data/0", storage.data(), 24);
        writer.writeRecord("data/1", storage.data(), 32);
        writer.writeRecord("data.pkl", bad.data(), bad.size());
        writer.writeEndOfFile();
      }
      const auto error =
          error_of<DataError>([&] { read_torch_file({scratch / "bad.pt"}); });
      EXPECT_THAT(
          error, testing::AnyOf("(no error)", testing::StartsWith("[weights] '")))
          << "byte " << at << " is " << static_cast<int>(value);
      refused += error == "(no error)" ? 0 : 1;
    }
  }
  EXPECT_GT(refused, static_cast<int64_t>(size));
}

}  // namespace tandem::weights_test
