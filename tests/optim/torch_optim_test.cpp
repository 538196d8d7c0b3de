// Optimizers for torch::optim against PyTorch, and against the formulas of papers and
// of newer versions of PyTorch.

#include "tandem/optim/torch_optim.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/parity/python.h"
#include "tests/places.h"

namespace tandem::torch_optim_test {

using testing::HasSubstr;

constexpr int64_t kSteps = 20;

struct Problem {
  static at::Tensor make(double first, double last, at::IntArrayRef dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) {
      count *= dim;
    }
    return at::linspace(first, last, count, at::kDouble)
        .view(dims)
        .clone()
        .set_requires_grad(true);
  }

  at::Tensor loss(int64_t step) const {
    const auto rising = static_cast<double>(step + 1);
    return (a * a * a).sum() + at::sin(3 * b).sum() +
           (at::cos(2 * c).sum() + (d * d * d).sum()) * rising;
  }

  std::vector<at::Tensor> all() const {
    return {a, b, c, d, unused};
  }

  at::Tensor a = make(-1, 2, {3, 4});
  at::Tensor b = make(-1, 2, {5});
  at::Tensor c = make(-1, 1, {2, 3, 4});
  at::Tensor d = make(0.5, 2, {6, 2});
  at::Tensor unused = make(-1, 2, {2});
};

struct Case {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(const Problem&)> make;
};

// An optimizer with two groups. The first has the defaults.
template <typename Class, typename Options>
Case make_case(const char* name, const Options& options) {
  return {name, [options](const Problem& problem) {
            std::vector<torch::optim::OptimizerParamGroup> groups;
            groups.emplace_back(
                std::vector<at::Tensor>{problem.a, problem.b, problem.unused});
            groups.emplace_back(
                std::vector<at::Tensor>{problem.c, problem.d},
                std::make_unique<Options>(options));
            return std::make_unique<Class>(groups);
          }};
}

// In the order of the cases of optimizers.py.
std::vector<Case> cases() {
  return {
      make_case<Adadelta>(
          "adadelta", AdadeltaOptions(0.3).rho(0.8).eps(1e-4).weight_decay(0.1)),
      make_case<Adamax>(
          "adamax", AdamaxOptions(0.01).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1)),
      make_case<NAdam>(
          "nadam", NAdamOptions(0.01)
                       .betas({0.8, 0.95})
                       .eps(1e-4)
                       .momentum_decay(0.1)
                       .weight_decay(0.1)),
      make_case<NAdam>(
          "nadam_decoupled",
          NAdamOptions(0.01).decoupled_weight_decay(true).weight_decay(0.1)),
      make_case<RAdam>(
          "radam", RAdamOptions(0.01).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1)),
      make_case<RAdam>(
          "radam_decoupled",
          RAdamOptions(0.01).decoupled_weight_decay(true).weight_decay(0.1)),
      make_case<Lion>("lion", LionOptions(0.01).betas({0.8, 0.95}).weight_decay(0.1)),
      make_case<Lamb>(
          "lamb", LambOptions(0.01).betas({0.8, 0.95}).eps(1e-4).weight_decay(0.1)),
      make_case<Adafactor>(
          "adafactor", AdafactorOptions(0.5)
                           .beta2_decay(-0.6)
                           .eps(1e-4)
                           .eps2(0.1)
                           .d(1.25)
                           .weight_decay(0.1)),
      make_case<Muon>(
          "muon", MuonOptions(0.02)
                      .momentum(0.8)
                      .ns_steps(3)
                      .match_rms_adamw(true)
                      .betas({0.8, 0.95})
                      .weight_decay(0.2)),
  };
}

void make_step(
    torch::optim::Optimizer& optimizer, const Problem& problem, int64_t step) {
  const auto loss = optimizer.step([&] {
    optimizer.zero_grad();
    auto value = problem.loss(step);
    value.backward();
    return value;
  });
  EXPECT_TRUE(loss.defined());
}

TEST(TorchOptim, EqualsPython) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto python = run_python({source_dir() + "/tests/optim/optimizers.py"});
  ASSERT_TRUE(python.status.ok()) << python.errors;
  std::istringstream words(python.output);
  for (const auto& [name, make] : cases()) {
    const Problem problem;
    const auto optimizer = make(problem);
    double largest = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      make_step(*optimizer, problem, step);
      for (const auto& parameter : problem.all()) {
        const auto flat = parameter.detach().flatten();
        for (int64_t i = 0; i < flat.numel(); ++i) {
          std::string word;
          ASSERT_TRUE(words >> word);
          const double expected = std::strtod(word.c_str(), nullptr);
          const double error = std::abs(flat[i].item<double>() - expected);
          largest = std::max(largest, error / std::max(1.0, std::abs(expected)));
        }
      }
    }
    EXPECT_LE(largest, 1e-12) << name;
    EXPECT_GT((problem.a - Problem().a).abs().max().item<double>(), 1e-4) << name;
  }
}

TEST(TorchOptim, SavesItsStateAsOtherOptimizersDo) {
  for (const auto& [name, make] : cases()) {
    SCOPED_TRACE(name);
    const Problem whole;
    const auto optimizer = make(whole);
    make_step(*optimizer, whole, 0);
    std::stringstream stream;
    torch::save(*optimizer, stream);
    const Problem loaded;
    const auto other = make(loaded);
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < loaded.all().size(); ++i) {
        loaded.all()[i].copy_(whole.all()[i]);
      }
    }
    torch::load(*other, stream);
    make_step(*optimizer, whole, 1);
    make_step(*other, loaded, 1);
    for (size_t i = 0; i < loaded.all().size(); ++i) {
      EXPECT_TRUE(loaded.all()[i].equal(whole.all()[i])) << i;
    }
  }
}

// Optimizers compute such parameters with LibTorch's operators.
TEST(TorchOptim, UpdatesParametersWithGaps) {
  for (const auto& [name, make] : cases()) {
    const Problem dense;
    Problem gaps;
    gaps.a = at::zeros({3, 8}, at::kDouble)
                 .slice(1, 0, 8, 2)
                 .copy_(gaps.a.detach())
                 .set_requires_grad(true);
    ASSERT_FALSE(gaps.a.is_non_overlapping_and_dense());
    const auto expected = make(dense);
    const auto optimizer = make(gaps);
    for (int64_t step = 0; step < 3; ++step) {
      make_step(*expected, dense, step);
      make_step(*optimizer, gaps, step);
    }
    EXPECT_TRUE(gaps.a.allclose(dense.a, 1e-13, 1e-13)) << name;
  }
}

TEST(TorchOptim, OptionsMayChangeBetweenSteps) {
  const Problem changed;
  const Problem constant;
  RAdam first(changed.all(), RAdamOptions(0.01).eps(1e-3));
  RAdam second(constant.all(), RAdamOptions(0.01).eps(1e-5));
  make_step(first, changed, 0);
  make_step(second, constant, 0);
  EXPECT_TRUE(first.param_groups().size() == 1 && changed.b.equal(constant.b))
      << "the first step of RAdam does not use eps";
  dynamic_cast<RAdamOptions&>(first.param_groups()[0].options()).eps(1e-5);
  for (int64_t step = 1; step < 10; ++step) {
    make_step(first, changed, step);
    make_step(second, constant, step);
  }
  EXPECT_TRUE(changed.b.equal(constant.b));
}

TEST(TorchOptim, RejectsInvalidOptions) {
  const std::vector<at::Tensor> parameters = {at::ones({1})};
  const auto refused = [&](const auto& make) { return error_of<ConfigError>(make); };
  EXPECT_THAT(
      refused([&] { Adadelta optimizer(parameters, AdadeltaOptions(-1)); }),
      HasSubstr("[adadelta] lr is -1, expected 0 to 1e+37; change lr"));
  EXPECT_THAT(
      refused([&] { Adadelta optimizer(parameters, AdadeltaOptions().rho(1.5)); }),
      HasSubstr("rho is 1.5"));
  EXPECT_THAT(
      refused([&] {
        Lion optimizer(parameters, LionOptions().betas({0.9, 1}));
      }),
      HasSubstr("beta2 is 1"));
  EXPECT_THAT(
      refused([&] { Adafactor optimizer(parameters, AdafactorOptions().d(0.5)); }),
      HasSubstr("update_clip is 0.5"));
  EXPECT_THAT(
      refused([&] {
        Lion optimizer(parameters);
        optimizer.add_param_group({parameters, std::make_unique<RAdamOptions>()});
      }),
      HasSubstr("[lion] a parameter group has options of radam"));
}

TEST(TorchOptim, RejectsSparseGradients) {
  const auto parameter = at::ones({3}).set_requires_grad(true);
  parameter.mutable_grad() = at::ones({3}).to_sparse();
  Lion optimizer(std::vector<at::Tensor>{parameter});
  EXPECT_THAT(
      error_of<ConfigError>([&] { optimizer.step(); }),
      HasSubstr("[lion] a gradient is sparse"));
}

}  // namespace tandem::torch_optim_test
