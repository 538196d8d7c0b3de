// Compares optimizers with those of LibTorch after each step.

#include <gtest/gtest.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tandem/optim/torch_optim.h"
#include "tests/optim/small_arenas.h"

namespace tandem::optimizer_parity_test {

constexpr int64_t kSteps = 10;

std::vector<at::Tensor> make_reference(at::ScalarType dtype) {
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    parameters.push_back(first_value(i, dtype).set_requires_grad(true));
  }
  return parameters;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  const double tolerance = expected.scalar_type() == at::kDouble ? 1e-12 : 1e-6;
  const auto error = (actual - expected).abs().max().item<double>();
  EXPECT_LE(error, tolerance * expected.abs().max().item<double>());
}

// One step of the reference, from the gradients to the parameters.
using ReferenceStep = std::function<void(std::vector<at::Tensor>&)>;

void expect_agrees(
    const OptimizerOptions& options,
    const std::function<ReferenceStep(std::vector<at::Tensor>&)>& make_step,
    const std::vector<int64_t>& group_of = {},
    const std::vector<ParameterGroup>& groups = {ParameterGroup{}}) {
  for (const auto dtype : kDtypes) {
    Arenas arenas(dtype, group_of);
    const auto optimizer =
        make_optimizer(options, arenas.parameters, arenas.gradients, groups);
    auto reference = make_reference(dtype);
    const auto reference_step = make_step(reference);
    for (int64_t step = 1; step <= kSteps; ++step) {
      arenas.set_gradients(step);
      update_all(*optimizer, arenas, {optimizer->base_lr(), 1, step});
      for (size_t i = 0; i < reference.size(); ++i) {
        reference[i].mutable_grad() = gradient_value(i, step, dtype);
      }
      reference_step(reference);
      for (size_t i = 0; i < reference.size(); ++i) {
        SCOPED_TRACE(
            std::string(name_of(options.kind)) + " " + c10::toString(dtype) +
            ", step " + std::to_string(step) + ", parameter " + std::to_string(i));
        expect_close(arenas.parameters.view(i), reference[i].detach());
      }
    }
  }
}

// `make` returns a shared_ptr to an optimizer of LibTorch.
template <typename Make>
std::function<ReferenceStep(std::vector<at::Tensor>&)> torch_step(Make make) {
  return [make](std::vector<at::Tensor>& parameters) -> ReferenceStep {
    auto optimizer = make(parameters);
    return [optimizer](std::vector<at::Tensor>&) { optimizer->step(); };
  };
}

void expect_agrees_with_torch_sgd(const OptimizerOptions& options) {
  expect_agrees(options, torch_step([options](auto& parameters) {
                  const double decay = options.weight_decay;
                  return std::make_shared<torch::optim::SGD>(
                      parameters,
                      torch::optim::SGDOptions(options.lr)
                          .momentum(options.momentum)
                          .dampening(options.dampening)
                          .nesterov(options.nesterov)
                          .weight_decay(decay == OptimizerOptions::kUnset ? 0 : decay));
                }));
}

TEST(Sgd, AgreesWithLibTorch) {
  auto options = named("sgd");
  options.lr = 0.1;
  expect_agrees_with_torch_sgd(options);
  options.weight_decay = 0.05;
  expect_agrees_with_torch_sgd(options);
}

TEST(Sgd, AgreesWithLibTorchWithMomentum) {
  auto options = named("sgd");
  options.lr = 0.1;
  options.momentum = 0.9;
  expect_agrees_with_torch_sgd(options);
  options.weight_decay = 0.05;
  expect_agrees_with_torch_sgd(options);
  options.nesterov = true;
  expect_agrees_with_torch_sgd(options);
}

TEST(Sgd, AgreesWithLibTorchWithDampening) {
  auto options = named("sgd");
  options.lr = 0.1;
  options.momentum = 0.9;
  options.dampening = 0.4;
  expect_agrees_with_torch_sgd(options);
}

TEST(Sgd, FirstStepCopiesTheGradientToTheMomentumBuffer) {
  auto options = named("sgd");
  options.momentum = 0.9;
  options.dampening = 0.5;
  Arenas arenas(at::kDouble);
  const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
  Arena& buffer = *optimizer->state()[0];
  buffer.segment(0).fill_(7);  // must not matter
  arenas.gradients.segment(0).fill_(2);
  update_all(*optimizer, arenas, {1, 1, 1});
  EXPECT_TRUE(buffer.segment(0).eq(2).all().item<bool>());
  update_all(*optimizer, arenas, {1, 1, 2});
  EXPECT_TRUE(buffer.segment(0).eq(0.9 * 2 + 0.5 * 2).all().item<bool>());
}

TEST(Adam, AgreesWithLibTorch) {
  auto options = named("adam");
  options.lr = 0.02;
  options.beta1 = 0.8;
  options.beta2 = 0.95;
  options.eps = 1e-5;
  for (const double decay : {0.0, 0.3}) {
    for (const bool amsgrad : {false, true}) {
      options.weight_decay = decay;
      options.amsgrad = amsgrad;
      expect_agrees(options, torch_step([options](auto& parameters) {
                      return std::make_shared<torch::optim::Adam>(
                          parameters,
                          torch::optim::AdamOptions(options.lr)
                              .betas(std::make_tuple(options.beta1, options.beta2))
                              .eps(options.eps)
                              .weight_decay(options.weight_decay)
                              .amsgrad(options.amsgrad));
                    }));
    }
  }
}

TEST(AdamW, AgreesWithLibTorch) {
  auto options = named("adamw");
  options.lr = 0.02;
  for (const double decay : {0.0, 0.3}) {
    for (const bool amsgrad : {false, true}) {
      options.weight_decay = decay;
      options.amsgrad = amsgrad;
      expect_agrees(options, torch_step([options](auto& parameters) {
                      return std::make_shared<torch::optim::AdamW>(
                          parameters, torch::optim::AdamWOptions(options.lr)
                                          .weight_decay(options.weight_decay)
                                          .amsgrad(options.amsgrad));
                    }));
    }
  }
}

TEST(Adam, HasLibTorchDefaults) {
  expect_agrees(named("adam"), torch_step([](auto& parameters) {
                  return std::make_shared<torch::optim::Adam>(parameters);
                }));
  expect_agrees(named("adamw"), torch_step([](auto& parameters) {
                  return std::make_shared<torch::optim::AdamW>(parameters);
                }));
}

TEST(Adagrad, AgreesWithLibTorch) {
  expect_agrees(named("adagrad"), torch_step([](auto& parameters) {
                  return std::make_shared<torch::optim::Adagrad>(parameters);
                }));
  auto options = named("adagrad");
  options.lr = 0.05;
  options.lr_decay = 0.3;
  options.weight_decay = 0.2;
  options.initial_accumulator_value = 0.5;
  options.eps = 1e-5;
  expect_agrees(options, torch_step([](auto& parameters) {
                  return std::make_shared<torch::optim::Adagrad>(
                      parameters, torch::optim::AdagradOptions(0.05)
                                      .lr_decay(0.3)
                                      .weight_decay(0.2)
                                      .initial_accumulator_value(0.5)
                                      .eps(1e-5));
                }));
}

TEST(Rmsprop, AgreesWithLibTorch) {
  expect_agrees(named("rmsprop"), torch_step([](auto& parameters) {
                  return std::make_shared<torch::optim::RMSprop>(parameters);
                }));
  for (const double momentum : {0.0, 0.8}) {
    for (const bool centered : {false, true}) {
      auto options = named("rmsprop");
      options.lr = 0.02;
      options.alpha = 0.9;
      options.eps = 1e-5;
      options.weight_decay = 0.2;
      options.momentum = momentum;
      options.centered = centered;
      expect_agrees(options, torch_step([=](auto& parameters) {
                      return std::make_shared<torch::optim::RMSprop>(
                          parameters, torch::optim::RMSpropOptions(0.02)
                                          .alpha(0.9)
                                          .eps(1e-5)
                                          .weight_decay(0.2)
                                          .momentum(momentum)
                                          .centered(centered));
                    }));
    }
  }
}

// torch_optim_test.cpp compares these references with Python.
template <typename Class, typename Options>
void expect_agrees_with_loop(OptimizerOptions options, const Options& loop_options) {
  expect_agrees(named(name_of(options.kind)), torch_step([](auto& parameters) {
                  return std::make_shared<Class>(parameters);
                }));
  options.lr = loop_options.lr();
  options.weight_decay = loop_options.weight_decay();
  expect_agrees(options, torch_step([=](auto& parameters) {
                  return std::make_shared<Class>(parameters, loop_options);
                }));
}

TEST(Optimizer, AgreesWithTheOptimizersForLoops) {
  auto adadelta = named("adadelta");
  adadelta.rho = 0.7;
  adadelta.eps = 1e-4;
  expect_agrees_with_loop<Adadelta>(
      adadelta, AdadeltaOptions(0.5).rho(0.7).eps(1e-4).weight_decay(0.2));
  auto with_betas = [](const char* name) {
    auto options = named(name);
    options.beta1 = 0.8;
    options.beta2 = 0.95;
    return options;
  };
  expect_agrees_with_loop<Adamax>(
      with_betas("adamax"), AdamaxOptions(0.01).betas({0.8, 0.95}).weight_decay(0.2));
  expect_agrees_with_loop<NAdam>(
      with_betas("nadam"), NAdamOptions(0.01).betas({0.8, 0.95}).weight_decay(0.2));
  expect_agrees_with_loop<RAdam>(
      with_betas("radam"), RAdamOptions(0.01).betas({0.8, 0.95}).weight_decay(0.2));
  expect_agrees_with_loop<Lion>(
      with_betas("lion"), LionOptions(0.01).betas({0.8, 0.95}).weight_decay(0.2));
  expect_agrees_with_loop<Lamb>(
      with_betas("lamb"), LambOptions(0.01).betas({0.8, 0.95}).weight_decay(0.2));
  expect_agrees_with_loop<Muon>(
      with_betas("muon"), MuonOptions(0.01).betas({0.8, 0.95}).weight_decay(0.2));
  auto adafactor = named("adafactor");
  adafactor.update_clip = 1.5;
  expect_agrees_with_loop<Adafactor>(
      adafactor, AdafactorOptions(0.02).d(1.5).weight_decay(0.2));
}

TEST(Optimizer, ScalesLrAndWeightDecayByGroup) {
  auto options = named("adamw");
  options.lr = 0.02;
  options.weight_decay = 0.5;
  const auto make_step = [](std::vector<at::Tensor>& parameters) -> ReferenceStep {
    const auto with = [&](std::vector<size_t> which, double lr, double decay) {
      std::vector<at::Tensor> members;
      for (const size_t i : which) {
        members.push_back(parameters[i]);
      }
      return std::make_shared<torch::optim::AdamW>(
          members, torch::optim::AdamWOptions(lr).weight_decay(decay));
    };
    const auto first = with({0, 3}, 0.02, 0.5);
    const auto second = with({1, 2}, 0.06, 0);
    return [=](std::vector<at::Tensor>&) {
      first->step();
      second->step();
    };
  };
  expect_agrees(options, make_step, {0, 1, 1, 0}, {{1, 1}, {3, 0}});
}

}  // namespace tandem::optimizer_parity_test
