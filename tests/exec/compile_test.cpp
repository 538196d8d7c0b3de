// tandem::compile() in loops of LibTorch, against the network itself.

#include "tandem/exec/api/compile.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include "tandem/base/error.h"
#include "tandem/exec/program/program_executor.h"
#include "tandem/model/module_model.h"
#include "tests/core/expect.h"
#include "tests/exec/rig.h"

namespace tandem::compile_test {

using testing::HasSubstr;

// Convolutions, batch norm, a skip connection and dropout.
struct SmallResNetImpl : torch::nn::Module {
  explicit SmallResNetImpl(double p = 0) {
    const auto conv = [](int64_t in, int64_t out) {
      return torch::nn::Conv2d(
          torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
    };
    stem = register_module("stem", conv(3, 16));
    norm = register_module("norm", torch::nn::BatchNorm2d(16));
    body = register_module("body", conv(16, 16));
    dropout = register_module("dropout", torch::nn::Dropout(p));
    head = register_module("head", torch::nn::Linear(16, 5));
  }

  at::Tensor forward(at::Tensor x) {
    x = torch::relu(norm(stem(x)));
    x = torch::relu(x + body(x));
    return head(dropout(x.mean({2, 3})));
  }

  torch::nn::Conv2d stem{nullptr}, body{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(SmallResNet);

SmallResNet network(double p = 0) {
  torch::manual_seed(3);
  return SmallResNet(p);
}

at::Tensor images(int64_t count, double phase) {
  return torch::linspace(0, 700, count * 3 * 8 * 8)
      .add(phase)
      .sin()
      .view({count, 3, 8, 8});
}

at::Tensor targets(int64_t count) {
  return torch::arange(count).remainder(5);
}

// Trains with batches of two sizes and returns the losses.
template <typename Forward>
std::vector<double> train(SmallResNet& net, const Forward& forward) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    const int64_t count = step % 3 == 2 ? 3 : 4;
    optimizer.zero_grad();
    const auto loss =
        torch::cross_entropy_loss(forward(images(count, step)), targets(count));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.template item<double>());
  }
  return losses;
}

void expect_close_state(const SmallResNet& found, const SmallResNet& expected) {
  const auto state = module_state(*found);
  const auto wanted = module_state(*expected);
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_TRUE(at::allclose(state[i].tensor, wanted[i].tensor, 1e-4, 1e-5))
        << state[i].name;
  }
}

TEST(Compile, TrainsLikeTheNetwork) {
  auto eager = network();
  auto net = network();
  const auto fast = compile(net, images(4, 0));
  EXPECT_EQ(fast.obstacle(), "");
  const auto found = train(net, fast);
  const auto wanted = train(eager, [&](const at::Tensor& x) { return eager(x); });
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(found[i], wanted[i], 1e-4);
  }
  expect_close_state(net, eager);
}

// In float64 there are no kernels, so all bits are equal, also of dropout's draws.
TEST(Compile, HasTheBitsOfTheNetworkInFloat64) {
  auto eager = network(0.5);
  auto net = network(0.5);
  for (auto* module : {&eager, &net}) {
    (*module)->to(at::kDouble);
  }
  const auto fast = compile(net, images(4, 0).to(at::kDouble));
  const auto losses = [&](SmallResNet& module, const auto& forward) {
    torch::manual_seed(8);
    return train(
        module, [&](const at::Tensor& x) { return forward(x.to(at::kDouble)); });
  };
  EXPECT_EQ(
      losses(net, fast), losses(eager, [&](const at::Tensor& x) { return eager(x); }));
  EXPECT_EQ(fast.obstacle(), "");
}

TEST(Compile, FollowsTheModeOfTheModule) {
  auto eager = network(0.5);
  auto net = network(0.5);
  const auto fast = compile(net, images(4, 0));
  expect_close_state(net, eager);
  for (auto* module : {&eager, &net}) {
    (*module)->eval();
  }
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(at::allclose(fast(images(3, 1)), eager(images(3, 1)), 1e-4, 1e-5));
  EXPECT_FALSE(fast(images(3, 1)).requires_grad());
  expect_close_state(net, eager);
}

TEST(Compile, AllowsSeveralForwardsBeforeTheirBackwards) {
  auto eager = network();
  auto net = network();
  const auto fast = compile(net, images(4, 0));
  const auto gradients = [](SmallResNet& module, const auto& forward) {
    const auto first = forward(images(4, 1));
    const auto second = forward(images(4, 2));
    (first - 2 * second).square().mean().backward();
    return module->stem->weight.grad();
  };
  EXPECT_TRUE(at::allclose(
      gradients(net, fast),
      gradients(eager, [&](const at::Tensor& x) { return eager(x); }), 1e-3, 1e-4));
}

TEST(Compile, GivesTheGradientOfItsInputAndOfTrainedParametersOnly) {
  auto eager = network();
  auto net = network();
  for (auto* module : {&eager, &net}) {
    (*module)->stem->weight.requires_grad_(false);
  }
  const auto fast = compile(net, images(4, 0));
  auto x = images(4, 1).requires_grad_();
  auto y = images(4, 1).requires_grad_();
  fast(x).square().sum().backward();
  eager(y).square().sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), y.grad(), 1e-3, 1e-4));
  EXPECT_FALSE(net->stem->weight.grad().defined());
  EXPECT_TRUE(
      at::allclose(net->head->weight.grad(), eager->head->weight.grad(), 1e-3, 1e-4));
}

TEST(Compile, ReadsParametersThatMoved) {
  auto net = network();
  const auto fast = compile(net, images(4, 0));
  net->eval();
  const torch::NoGradGuard no_grad;
  net->head->bias.set_data(torch::ones({5}));
  net->head->weight.set_data(torch::zeros({5, 16}));
  EXPECT_TRUE(fast(images(4, 1)).equal(torch::ones({4, 5})));
}

TEST(Compile, OutputsMayBeChangedAndKept) {
  auto net = network();
  const auto fast = compile(net, images(4, 0));
  const auto first = fast(images(4, 1));
  const auto copy = first.detach().clone();
  (void)fast(images(4, 2));
  EXPECT_TRUE(first.equal(copy));
}

struct DecidingImpl : torch::nn::Module {
  DecidingImpl() {
    layer = register_module("layer", torch::nn::Linear(4, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = layer(x);
    return y.sum().item<double>() > 0 ? y : -y;
  }
  torch::nn::Linear layer{nullptr};
};

TEST(Compile, RunsCallByCallIfForwardDecidesByValues) {
  const auto net = std::make_shared<DecidingImpl>();
  const auto x = torch::linspace(-1, 1, 12).view({3, 4});
  const auto fast = compile(net, x);
  EXPECT_THAT(fast.obstacle(), HasSubstr("aten::_local_scalar_dense"));
  for (const double sign : {1.0, -1.0}) {
    EXPECT_TRUE(fast(x * sign).equal(net->forward(x * sign)));
  }
}

TEST(Compile, RefusesASecondBackwardAndSecondDerivatives) {
  auto net = network();
  const auto fast = compile(net, images(4, 0));
  const auto loss = fast(images(4, 1)).sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THAT(
      error_of<Error>([&] { loss.backward(); }),
      HasSubstr("[compile] backward ran twice through one output"));
  const auto other = fast(images(4, 1)).sum();
  EXPECT_THAT(
      error_of<Error>([&] {
        (void)torch::autograd::grad(
            {other}, {net->head->weight}, {}, true, /*create_graph=*/true);
      }),
      HasSubstr("second derivatives are not compiled"));
}

// --- modules in train() ---

// Steps of a module by an executor, in training and then in evaluation mode.
std::vector<at::Tensor> steps_of(MakeExecutor make) {
  Rig rig(make_module_model(network(0.4)), make);
  std::vector<at::Tensor> results;
  for (const bool training : {true, false}) {
    for (int step = 0; step < 4; ++step) {
      const int64_t count = step == 2 ? 3 : 4;
      Batch batch;
      batch.inputs = images(count, step);
      batch.targets = targets(count);
      batch.global_count = count;
      StepContext context;
      context.training = training;
      torch::manual_seed(static_cast<uint64_t>(step));
      results.push_back(
          rig.executor->forward(0, batch, context).output.detach().clone());
      if (training) {
        rig.executor->backward(0, {}, context, rig.recorder);
      }
    }
  }
  // Two sizes in two modes.
  if (rig.executor->kind() == ExecutorKind::compiled) {
    EXPECT_EQ(rig.executor->recording_cost().steps, 4);
  }
  for (const auto& [name, tensor] : rig.arenas.state()) {
    results.push_back(tensor.detach().clone());
    results.push_back(tensor.grad().defined() ? tensor.grad().clone() : tensor);
  }
  return results;
}

std::unique_ptr<StageExecutor> make_plain(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  return make_program_executor(model, arenas, options, &plan_plain_calls);
}

TEST(CompiledModule, HasTheBitsOfEagerWithoutKernels) {
  const auto found = steps_of(&make_plain);
  const auto expected = steps_of(&make_eager_executor);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].equal(expected[i])) << i;
  }
}

TEST(CompiledModule, HasNearlyTheValuesOfEagerWithKernels) {
  const auto found = steps_of(&make_compiled_executor);
  const auto expected = steps_of(&make_eager_executor);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].allclose(expected[i], 1e-3, 1e-4)) << i;
  }
}

// The recording must not change the parameter a second time.
TEST(CompiledModule, MayChangeAParameter) {
  const auto weight_after_a_step = [](MakeExecutor make) {
    const auto weight = at::ones({4, 5}).set_requires_grad(true);
    Rig rig(
        make_function_model(
            [weight](const at::Tensor& x) mutable {
              {
                const c10::AutoGradMode no_grad(false);
                weight.mul_(0.5);
              }
              return x.matmul(weight);
            },
            {{"weight", weight}}),
        make);
    Batch batch;
    batch.inputs = torch::ones({3, 4});
    batch.targets = targets(3);
    batch.global_count = 3;
    rig.step(batch, StepContext());
    return rig.arenas.tensors()[0].detach().clone();
  };
  EXPECT_TRUE(weight_after_a_step(&make_plain)
                  .equal(weight_after_a_step(&make_eager_executor)));
}

// A module could decide by a counter, so only the user can choose this.
TEST(CompiledModule, IsChosenByTheUser) {
  const auto model = make_module_model(network());
  ModelArenas arenas(model->parameters(), model->buffers());
  std::string why_not;
  const auto chosen = [&](ExecutorKind kind) {
    return make_executor(kind, *model, arenas, {}, &why_not)->kind();
  };
  EXPECT_EQ(chosen(ExecutorKind::compiled), ExecutorKind::compiled);
  EXPECT_EQ(chosen(ExecutorKind::automatic), ExecutorKind::eager);
  EXPECT_THAT(why_not, HasSubstr("--executor compiled"));
}

}  // namespace tandem::compile_test
