// Adadelta for torch::optim against PyTorch.

#include "tandem/optim/torch_adadelta.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <cstdlib>
#include <sstream>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/parity/python.h"

namespace tandem::torch_adadelta_test {

using testing::HasSubstr;

// Prints the parameters after each of 20 steps with two groups. The gradients are
// functions of the parameters.
constexpr const char* kPython = R"(
import torch
make = lambda n: torch.linspace(-1, 2, n, dtype=torch.float64).requires_grad_()
a, b, unused = make(5), make(4), make(2)
optimizer = torch.optim.Adadelta([
    {"params": [a, unused]},
    {"params": [b], "lr": 0.3, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}])
for step in range(20):
    optimizer.zero_grad()
    ((a * a * a).sum() + torch.sin(3 * b).sum() * (step + 1)).backward()
    optimizer.step()
    for parameter in (a, b, unused):
        print(*(x.hex() for x in parameter.tolist()))
)";

struct Problem {
  static at::Tensor make(int64_t count) {
    return at::linspace(-1, 2, count, at::kDouble).set_requires_grad(true);
  }

  Problem() : optimizer(groups()) {}

  std::vector<torch::optim::OptimizerParamGroup> groups() const {
    std::vector<torch::optim::OptimizerParamGroup> all;
    all.emplace_back(std::vector<at::Tensor>{a, unused});
    all.emplace_back(
        std::vector<at::Tensor>{b},
        std::make_unique<AdadeltaOptions>(
            AdadeltaOptions(0.3).rho(0.8).eps(1e-4).weight_decay(0.1)));
    return all;
  }

  void step(int64_t number) {
    const auto loss = optimizer.step([&] {
      optimizer.zero_grad();
      auto value =
          (a * a * a).sum() + at::sin(3 * b).sum() * static_cast<double>(number + 1);
      value.backward();
      return value;
    });
    EXPECT_TRUE(loss.defined());
  }

  at::Tensor a = make(5);
  at::Tensor b = make(4);
  at::Tensor unused = make(2);
  Adadelta optimizer;
};

TEST(TorchAdadelta, EqualsPython) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto python = run_python({"-c", kPython});
  ASSERT_TRUE(python.status.ok()) << python.errors;
  std::istringstream words(python.output);
  Problem problem;
  for (int64_t step = 0; step < 20; ++step) {
    problem.step(step);
    for (const auto& parameter : {problem.a, problem.b, problem.unused}) {
      for (int64_t i = 0; i < parameter.numel(); ++i) {
        std::string word;
        ASSERT_TRUE(words >> word);
        EXPECT_NEAR(
            parameter[i].item<double>(), std::strtod(word.c_str(), nullptr), 1e-12)
            << "step " << step;
      }
    }
  }
}

TEST(TorchAdadelta, SavesItsStateAsOtherOptimizersDo) {
  Problem whole;
  whole.step(0);
  std::stringstream stream;
  torch::save(whole.optimizer, stream);
  Problem loaded;
  {
    const at::NoGradGuard no_grad;
    loaded.a.copy_(whole.a);
    loaded.b.copy_(whole.b);
  }
  torch::load(loaded.optimizer, stream);
  whole.step(1);
  loaded.step(1);
  EXPECT_TRUE(loaded.a.equal(whole.a));
  EXPECT_TRUE(loaded.b.equal(whole.b));
}

TEST(TorchAdadelta, RejectsInvalidOptions) {
  const auto refused = [](const AdadeltaOptions& options) {
    return error_of<ConfigError>(
        [&] { Adadelta optimizer(std::vector<at::Tensor>{at::ones({1})}, options); });
  };
  EXPECT_THAT(refused(AdadeltaOptions(-1)), HasSubstr("lr is -1"));
  EXPECT_THAT(refused(AdadeltaOptions().rho(1.5)), HasSubstr("rho is 1.5"));
  EXPECT_THAT(refused(AdadeltaOptions().eps(-1)), HasSubstr("eps is -1"));
}

}  // namespace tandem::torch_adadelta_test
