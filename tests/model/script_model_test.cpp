#include "tandem/model/script_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <fstream>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/formats/torch_file.h"
#include "tests/formats/rewrite_archive.h"
#include "tests/graph/graphs.h"
#include "tests/scratch.h"

namespace tandem::script_model_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

torch::jit::Module make_module(const std::string& forward) {
  torch::jit::Module norm("norm");
  norm.register_attribute("training", c10::BoolType::get(), true);
  norm.register_buffer("mean", at::zeros({3}));
  norm.register_parameter("weight", at::ones({3}).set_requires_grad(true), false);
  norm.define(R"(
    def forward(self, x):
      if self.training:
        self.mean.copy_(x.detach().mean(0))
      return (x - self.mean) * self.weight
  )");
  torch::jit::Module module("net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("matrix", at::randn({4, 3}).set_requires_grad(true), false);
  module.register_module("norm", norm);
  module.define(forward);
  return module;
}

constexpr const char* kForward =
    "def forward(self, x):\n  return self.norm.forward(torch.mm(x, self.matrix))\n";

class ScriptModel : public testing::Test {
 protected:
  std::string save(const torch::jit::Module& module) {
    module.save(path_);
    return path_;
  }
  std::string save(const std::string& forward) {
    return save(make_module(forward));
  }

  template <typename Thrown>
  std::string error_of() {
    try {
      (void)load_script_model(path_);
    } catch (const Thrown& error) {
      EXPECT_THAT(error.what(), HasSubstr("'" + path_ + "'"));
      return error.what();
    }
    return "no error";
  }

  // Writes the archive again, with entries that `change` has changed.
  template <typename Change>
  void rewrite(const Change& change, uint64_t version = 0) {
    const std::string copy = scratch_ / "copy.pt";
    rewrite_archive(path_, copy, change, version);
    path_ = copy;
  }

  Scratch scratch_;
  std::string path_ = scratch_ / "net.pt";
};

TEST_F(ScriptModel, HasTheNamesAndOutputsOfTheModule) {
  auto module = make_module(kForward);
  const auto model = load_script_model(save(module));
  std::vector<std::string> names;
  for (const auto& list : {model->parameters(), model->buffers()}) {
    for (const auto& [name, tensor] : list) {
      names.push_back(name);
    }
  }
  EXPECT_THAT(names, ElementsAre("matrix", "norm.weight", "norm.mean"));
  EXPECT_TRUE(model->parameters()[0].tensor.requires_grad());

  const auto x = at::randn({5, 4});
  module.eval();
  EXPECT_TRUE(model->forward(x, in_mode(false)).equal(module.forward({x}).toTensor()));
}

TEST_F(ScriptModel, FollowsTheModeOfTheRun) {
  const auto model = load_script_model(save(kForward));
  const auto mean = model->buffers()[0].tensor;
  model->forward(at::randn({5, 4}), in_mode(false));
  EXPECT_TRUE(mean.equal(at::zeros({3})));
  model->forward(at::randn({5, 4}), in_mode(true));
  EXPECT_FALSE(mean.equal(at::zeros({3})));
}

// TorchScript optimizes the graph of later calls. The backward of an optimized graph is
// one function, which returns the gradients of all parameters together.
TEST_F(ScriptModel, GradientsBecomeReadyOneAfterAnother) {
  torch::jit::Module module("net");
  for (const char* name : {"first", "second"}) {
    module.register_parameter(name, at::randn({4, 4}).set_requires_grad(true), false);
  }
  module.define("def forward(self, x):\n  return x @ self.first @ self.second\n");
  const auto model = load_script_model(save(module));
  for (int call = 0; call < 4; ++call) {
    const auto y = model->forward(at::randn({5, 4}), in_mode(true));
    EXPECT_EQ(y.grad_fn()->name(), "MmBackward0") << "call " << call;
    y.sum().backward();
  }
}

TEST_F(ScriptModel, TiedParametersKeepTheFirstName) {
  torch::jit::Module module("net");
  const auto matrix = at::randn({4, 4}).set_requires_grad(true);
  module.register_parameter("first", matrix, false);
  module.register_parameter("second", matrix, false);
  module.define("def forward(self, x):\n  return x @ self.first @ self.second\n");
  const auto model = load_script_model(save(module));
  ASSERT_EQ(model->parameters().size(), 1u);
  EXPECT_EQ(model->parameters()[0].name, "first");
}

TEST_F(ScriptModel, ForwardMustMapOneTensorToOneTensor) {
  save("def forward(self, x, y):\n  return x * y\n");
  EXPECT_THAT(
      error_of<ConfigError>(),
      HasSubstr("has a forward() with 2 inputs, expected one tensor"));
  save("def forward(self, x):\n  return x, x\n");
  EXPECT_THAT(
      error_of<ConfigError>(),
      HasSubstr("returns (Tensor, Tensor), expected one tensor"));
  save("def apply(self, x):\n  return x\n");
  EXPECT_THAT(error_of<ConfigError>(), HasSubstr("has no method forward()"));
  save("def forward(self, x, scale: float=1.0):\n  return x * scale\n");
  EXPECT_NO_THROW((void)load_script_model(path_));
}

TEST_F(ScriptModel, FrozenModuleIsAnError) {
  auto module = make_module(kForward);
  module.eval();
  save(torch::jit::freeze(module));
  EXPECT_THAT(
      error_of<ConfigError>(),
      AllOf(HasSubstr("has no parameters"), HasSubstr("without torch.jit.freeze()")));
}

TEST_F(ScriptModel, WeightsWithoutCodeAreAnError) {
  write_torch_file(path_, {{"weight", at::ones({2})}});
  EXPECT_FALSE(is_script_file(path_));
  EXPECT_THAT(
      error_of<DataError>(),
      AllOf(HasSubstr("contains weights but no code"), HasSubstr("torch.jit.script")));
  save(kForward);
  EXPECT_TRUE(is_script_file(path_));
}

TEST_F(ScriptModel, MissingFileIsAnError) {
  path_ = scratch_ / "none.pt";
  EXPECT_THAT(error_of<DataError>(), HasSubstr("No such file"));
  EXPECT_FALSE(is_script_file(path_));
}

TEST_F(ScriptModel, TornFileIsAnError) {
  const std::string whole = read_file(save(kForward));
  for (size_t kept = 0; kept < whole.size(); kept += 97) {
    std::ofstream(path_, std::ios::binary) << whole.substr(0, kept);
    EXPECT_THAT(error_of<DataError>(), HasSubstr("is damaged or not a zip")) << kept;
  }
}

TEST_F(ScriptModel, MissingEntryIsAnError) {
  save(kForward);
  rewrite([](const std::string& name, std::string& bytes) {
    bytes = name == "constants.pkl" ? "" : bytes;
  });
  EXPECT_THAT(error_of<DataError>(), HasSubstr("cannot be read by LibTorch"));
}

TEST_F(ScriptModel, NewerFormatIsAnError) {
  save(kForward);
  rewrite([](const std::string&, std::string&) {}, 1000);
  EXPECT_THAT(
      error_of<DataError>(),
      AllOf(HasSubstr("has version 1000 of the format"), HasSubstr("or an older one")));
}

TEST_F(ScriptModel, UnknownOperatorIsNamed) {
  save(kForward);
  rewrite([](const std::string& name, std::string& bytes) {
    const size_t found = bytes.find("torch.mm");
    if (name.rfind("code/", 0) == 0 && found != std::string::npos) {
      bytes.replace(found, 8, "torch.newer_mm");
    }
  });
  EXPECT_THAT(error_of<DataError>(), HasSubstr("Unknown builtin op: aten::newer_mm"));
}

}  // namespace tandem::script_model_test
