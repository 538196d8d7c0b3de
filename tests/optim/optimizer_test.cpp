#include "tandem/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int64_t kSteps = 10;
const at::ScalarType kDtypes[] = {at::kFloat, at::kDouble};
// None fills its last 64 bytes, so there is padding behind each.
const std::vector<std::vector<int64_t>> kShapes = {{7, 5}, {3}, {2, 3, 13}, {}};

at::Tensor first_value(size_t index, at::ScalarType dtype) {
  auto value = at::empty(kShapes[index], dtype);
  const auto count = at::arange(value.numel(), at::kDouble);
  const auto phase = static_cast<double>(index);
  return value.copy_(at::sin(0.7 * count + phase).view(kShapes[index]));
}

// Falls with the step, so that amsgrad has something to do.
at::Tensor gradient_value(size_t index, int64_t step, at::ScalarType dtype) {
  auto value = at::empty(kShapes[index], dtype);
  const auto count = at::arange(value.numel(), at::kDouble);
  const auto phase = 2.0 * static_cast<double>(index) + 3.0 * static_cast<double>(step);
  return value.copy_(
      at::cos(1.3 * count + phase).view(kShapes[index]) / static_cast<double>(step));
}

// Parameters and gradients of kShapes, with an optimizer over them.
struct Arenas {
  explicit Arenas(at::ScalarType dtype, const std::vector<int64_t>& groups = {})
      : layout(make_layout(dtype, groups)),
        parameters(layout, "parameters"),
        gradients(layout, "gradients") {
    for (size_t i = 0; i < kShapes.size(); ++i) {
      parameters.view(i).copy_(first_value(i, dtype));
    }
  }

  static std::shared_ptr<const ArenaLayout> make_layout(
      at::ScalarType dtype, const std::vector<int64_t>& groups) {
    std::vector<NamedTensor> tensors;
    for (size_t i = 0; i < kShapes.size(); ++i) {
      tensors.push_back({"p" + std::to_string(i), first_value(i, dtype)});
      tensors.back().tensor.set_requires_grad(true);
    }
    return std::make_shared<const ArenaLayout>(tensors, groups, 4);
  }

  void set_gradients(int64_t step, double factor = 1) {
    for (size_t i = 0; i < kShapes.size(); ++i) {
      auto view = gradients.view(i);
      view.copy_(gradient_value(i, step, view.scalar_type()) * factor);
    }
  }

  std::shared_ptr<const ArenaLayout> layout;
  Arena parameters;
  Arena gradients;
};

void update_all(
    Optimizer& optimizer, const Arenas& arenas, const UpdateContext& context) {
  for (const auto& range : arenas.layout->ranges()) {
    optimizer.update(range, context);
  }
}

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

// One step of the reference: reads the gradients, writes the parameters.
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

// `make` returns a shared_ptr to one of LibTorch's optimizers.
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

OptimizerOptions named(const std::string& name) {
  OptimizerOptions options;
  options.kind = *find_choice<OptimizerKind>(name);
  return options;
}

// All four with weight decay, and with all their state.
std::vector<OptimizerOptions> one_of_each() {
  std::vector<OptimizerOptions> all;
  for (const auto& entry : Choices<OptimizerKind>::rows) {
    auto options = named(entry.name);
    options.weight_decay = 0.1;
    options.momentum = options.kind == OptimizerKind::sgd ? 0.9 : 0;
    options.amsgrad =
        options.kind == OptimizerKind::adam || options.kind == OptimizerKind::adamw;
    all.push_back(options);
  }
  return all;
}

std::string error_of(
    const OptimizerOptions& options, const std::vector<ParameterGroup>& groups) {
  Arenas arenas(at::kFloat);
  try {
    make_optimizer(options, arenas.parameters, arenas.gradients, groups);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of(const OptimizerOptions& options) {
  return error_of(options, {ParameterGroup{}});
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

TEST(Sgd, FirstStepMakesTheGradientTheMomentumBuffer) {
  auto options = named("sgd");
  options.momentum = 0.9;
  options.dampening = 0.5;
  Arenas arenas(at::kDouble);
  const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
  Arena& buffer = *optimizer->state()[0];
  buffer.segment(0).fill_(7);  // of an earlier run, say
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

TEST(Adam, HasLibTorchsDefaults) {
  expect_agrees(named("adam"), torch_step([](auto& parameters) {
                  return std::make_shared<torch::optim::Adam>(parameters);
                }));
  expect_agrees(named("adamw"), torch_step([](auto& parameters) {
                  return std::make_shared<torch::optim::AdamW>(parameters);
                }));
}

// torch.optim.adadelta._single_tensor_adadelta, line by line: LibTorch has no
// Adadelta for C++.
ReferenceStep adadelta_step(
    const std::vector<at::Tensor>& parameters, double lr, double rho, double eps,
    double decay) {
  std::vector<at::Tensor> square_avgs;
  std::vector<at::Tensor> acc_deltas;
  for (const auto& parameter : parameters) {
    square_avgs.push_back(at::zeros_like(parameter.detach()));
    acc_deltas.push_back(at::zeros_like(parameter.detach()));
  }
  return [=](std::vector<at::Tensor>& updated) {
    for (size_t i = 0; i < updated.size(); ++i) {
      auto parameter = updated[i].detach();
      auto grad = updated[i].grad();
      auto square_avg = square_avgs[i];
      auto acc_delta = acc_deltas[i];
      if (decay != 0) {
        grad = grad.add(parameter, decay);
      }
      square_avg.mul_(rho).addcmul_(grad, grad, 1 - rho);
      const auto std = square_avg.add(eps).sqrt_();
      const auto delta = acc_delta.add(eps).sqrt_().div_(std).mul_(grad);
      acc_delta.mul_(rho).addcmul_(delta, delta, 1 - rho);
      parameter.add_(delta, -lr);
    }
  };
}

TEST(Adadelta, AgreesWithTorchOptim) {
  expect_agrees(named("adadelta"), [](std::vector<at::Tensor>& parameters) {
    return adadelta_step(parameters, 1.0, 0.9, 1e-6, 0);
  });
  auto options = named("adadelta");
  options.lr = 0.5;
  options.rho = 0.7;
  options.eps = 1e-4;
  options.weight_decay = 0.2;
  expect_agrees(options, [](std::vector<at::Tensor>& parameters) {
    return adadelta_step(parameters, 0.5, 0.7, 1e-4, 0.2);
  });
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

TEST(Optimizer, GivesTheSameBitsInRaggedRanges) {
  for (const auto dtype : kDtypes) {
    for (const auto& options : one_of_each()) {
      SCOPED_TRACE(name_of(options.kind));
      Arenas whole(dtype, {0, 1, 0, 1});
      Arenas split(dtype, {0, 1, 0, 1});
      const std::vector<ParameterGroup> groups = {{1, 1}, {0.5, 2}};
      const auto once =
          make_optimizer(options, whole.parameters, whole.gradients, groups);
      const auto often =
          make_optimizer(options, split.parameters, split.gradients, groups);
      const int64_t numel = whole.layout->segments()[0].numel;
      for (int64_t step = 1; step <= kSteps; ++step) {
        const UpdateContext context{0.3, 0.7, step};
        whole.set_gradients(step);
        split.set_gradients(step);
        once->update({0, 0, numel}, context);
        // Sizes 0, 1, 2, ... from the back: all remainders, all alignments.
        for (int64_t end = numel, size = 0; end > 0; end -= size, ++size) {
          often->update({0, std::max<int64_t>(0, end - size), end}, context);
        }
      }
      EXPECT_TRUE(whole.parameters.segment(0).equal(split.parameters.segment(0)));
      for (size_t i = 0; i < once->state().size(); ++i) {
        EXPECT_TRUE(once->state()[i]->segment(0).equal(often->state()[i]->segment(0)));
      }
    }
  }
}

TEST(Optimizer, MultipliesGradientsByTheirScale) {
  for (const auto& options : one_of_each()) {
    SCOPED_TRACE(name_of(options.kind));
    Arenas plain(at::kFloat);
    Arenas scaled(at::kFloat);
    const auto first = make_optimizer(options, plain.parameters, plain.gradients);
    const auto second = make_optimizer(options, scaled.parameters, scaled.gradients);
    plain.set_gradients(1);
    scaled.set_gradients(1, 8);  // a power of two: exact
    update_all(*first, plain, {0.1, 1, 1});
    update_all(*second, scaled, {0.1, 0.125, 1});
    EXPECT_TRUE(plain.parameters.segment(0).equal(scaled.parameters.segment(0)));
  }
}

TEST(Optimizer, KeepsPaddingZero) {
  for (const auto& options : one_of_each()) {
    SCOPED_TRACE(name_of(options.kind));
    Arenas arenas(at::kFloat);
    const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
    for (int64_t step = 1; step <= 3; ++step) {
      arenas.set_gradients(step);
      update_all(*optimizer, arenas, {0.1, 1, step});
    }
    auto checked = optimizer->state();
    checked.push_back(&arenas.parameters);
    for (Arena* arena : checked) {
      double inside = 0;
      for (size_t i = 0; i < kShapes.size(); ++i) {
        inside += arena->view(i).ne(0).sum().item<double>();
      }
      // NaN is not zero either.
      EXPECT_EQ(arena->segment(0).ne(0).sum().item<double>(), inside) << arena->name();
    }
  }
}

TEST(Optimizer, UpdatesOnlyTheRangeGiven) {
  for (const auto& options : one_of_each()) {
    SCOPED_TRACE(name_of(options.kind));
    Arenas arenas(at::kDouble);
    const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
    const auto before = arenas.parameters.segment(0).clone();
    arenas.set_gradients(1);
    optimizer->update({0, 5, 30}, {0.1, 1, 1});
    const auto changed = arenas.parameters.segment(0).ne(before);
    EXPECT_EQ(changed.sum().item<int64_t>(), 25);
    EXPECT_EQ(changed.slice(0, 5, 30).sum().item<int64_t>(), 25);
  }
}

TEST(Optimizer, LeavesWhatIsNotTrainableAlone) {
  const auto trained = at::ones({3}, at::kDouble).set_requires_grad(true);
  const auto layout = std::make_shared<const ArenaLayout>(
      std::vector<NamedTensor>{
          {"frozen", at::ones({3})},
          {"trained", trained},
          {"count", at::ones({2}, at::kLong)}},
      std::vector<int64_t>{}, 1);
  Arena parameters(layout, "parameters");
  Arena gradients(layout, "gradients");
  parameters.view(0).fill_(1);
  parameters.view(1).fill_(1);
  parameters.view(2).fill_(1);
  auto options = named("adamw");
  options.weight_decay = 0.5;
  const auto optimizer = make_optimizer(options, parameters, gradients);
  for (const auto& range : layout->ranges()) {
    optimizer->update(range, {0.1, 1, 1});
  }
  EXPECT_TRUE(parameters.view(0).eq(1).all().item<bool>());
  EXPECT_TRUE(parameters.view(1).eq(1 - 0.1 * 0.5).all().item<bool>());
  EXPECT_TRUE(parameters.view(2).eq(1).all().item<bool>());
}

TEST(Optimizer, StateHasPyTorchsNames) {
  const auto names = [](const OptimizerOptions& options) {
    Arenas arenas(at::kFloat);
    const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
    std::vector<std::string> found;
    for (const Arena* arena : optimizer->state()) {
      EXPECT_EQ(arena->layout().describe(), arenas.layout->describe());
      found.push_back(arena->name());
    }
    return join(found);
  };
  EXPECT_EQ(names(named("sgd")), "");
  EXPECT_EQ(names(named("adam")), "exp_avg, exp_avg_sq");
  const auto full = one_of_each();
  EXPECT_EQ(names(full[0]), "momentum_buffer");
  EXPECT_EQ(names(full[1]), "exp_avg, exp_avg_sq, max_exp_avg_sq");
  EXPECT_EQ(names(full[2]), "exp_avg, exp_avg_sq, max_exp_avg_sq");
  EXPECT_EQ(names(full[3]), "square_avg, acc_delta");
}

TEST(Optimizer, BaseLrIsPyTorchsUnlessGiven) {
  const auto base_lr = [](const OptimizerOptions& options) {
    Arenas arenas(at::kFloat);
    return make_optimizer(options, arenas.parameters, arenas.gradients)->base_lr();
  };
  EXPECT_EQ(base_lr(named("sgd")), 1e-3);
  EXPECT_EQ(base_lr(named("adam")), 1e-3);
  EXPECT_EQ(base_lr(named("adamw")), 1e-3);
  EXPECT_EQ(base_lr(named("adadelta")), 1);
  auto options = named("adam");
  options.lr = 0;
  EXPECT_EQ(base_lr(options), 0);
}

TEST(Optimizer, RefusesASettingItDoesNotHave) {
  auto options = named("adam");
  options.momentum = 0.9;
  EXPECT_EQ(
      error_of(options),
      "[config] momentum is 0.9, but optimizer adam has none, only sgd; leave out "
      "--momentum, or change --optimizer");
  options = named("sgd");
  options.eps = 1e-8;
  EXPECT_THAT(error_of(options), HasSubstr("eps is 1e-08, but optimizer sgd"));
  options = named("adadelta");
  options.amsgrad = true;
  EXPECT_THAT(error_of(options), HasSubstr("amsgrad is true, but optimizer adadelta"));
  options = named("adamw");
  options.rho = 0.8;
  EXPECT_THAT(error_of(options), HasSubstr("rho is 0.8, but optimizer adamw"));
}

TEST(Optimizer, RefusesValuesOutOfRange) {
  auto options = named("sgd");
  options.lr = -0.5;
  EXPECT_THAT(error_of(options), HasSubstr("lr is -0.5, expected 0 to"));
  options = named("sgd");
  options.weight_decay = std::nan("");
  EXPECT_THAT(error_of(options), HasSubstr("weight_decay is nan"));
  options = named("sgd");
  options.momentum = -0.9;
  EXPECT_THAT(error_of(options), HasSubstr("momentum is -0.9"));
  options = named("sgd");
  options.nesterov = true;
  EXPECT_THAT(error_of(options), HasSubstr("nesterov needs momentum"));
  options = named("adam");
  options.beta2 = 1;
  EXPECT_THAT(error_of(options), HasSubstr("beta2 is 1, expected at least 0 and"));
  options = named("adam");
  options.eps = 1e-60;  // 0 in float32
  EXPECT_THAT(error_of(options), HasSubstr("eps is 1e-60, expected 1e-37 to"));
  options = named("adadelta");
  options.rho = 1.5;
  EXPECT_THAT(error_of(options), HasSubstr("rho is 1.5, expected 0 to 1"));
  EXPECT_THAT(error_of(named("sgd"), {{-2, 1}}), HasSubstr("lr_scale is -2"));
  EXPECT_THAT(
      error_of(named("sgd"), {}),
      HasSubstr("parameter 'p0' is in group 0, but there are 0 groups"));
}

TEST(Optimizer, RefusesOtherDtypes) {
  Arenas arenas(at::kHalf);
  try {
    make_optimizer(named("sgd"), arenas.parameters, arenas.gradients);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("type Half, expected Float or Double"));
  }
}

}  // namespace
}  // namespace tandem
