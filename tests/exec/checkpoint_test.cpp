// tandem::checkpoint() in loops of LibTorch, against the same functions without it.

#include "tandem/exec/api/checkpoint.h"

#include <gmock/gmock.h>
#include <torch/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include "tandem/base/error.h"
#include "tandem/exec/api/compile.h"
#include "tandem/exec/autocast.h"
#include "tests/core/expect.h"

namespace tandem::checkpoint_test {

using testing::HasSubstr;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

Tensor values(const std::vector<int64_t>& sizes, double phase) {
  const int64_t count = c10::multiply_integers(sizes);
  return torch::linspace(0, 9, count, torch::kDouble).add(phase).sin().view(sizes);
}

Tensor leaf(const std::vector<int64_t>& sizes, double phase) {
  return values(sizes, phase).requires_grad_();
}

// Two blocks with batch norm and dropout, which may be recomputed.
struct BlocksImpl : torch::nn::Module {
  BlocksImpl() {
    torch::manual_seed(3);
    for (const char* name : {"first", "second"}) {
      blocks.push_back(register_module(
          name,
          torch::nn::Sequential(
              torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 3, 3).padding(1)),
              torch::nn::BatchNorm2d(3), torch::nn::ReLU(), torch::nn::Dropout(0.4))));
    }
    head = register_module("head", torch::nn::Linear(3, 5));
    to(torch::kDouble);
  }

  Tensor forward(Tensor x, bool recomputes) {
    for (auto& block : blocks) {
      x = recomputes ? checkpoint(block, x) : block->forward(x);
    }
    return head(x.mean({2, 3}));
  }

  std::vector<torch::nn::Sequential> blocks;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Blocks);

// Parameters, gradients and buffers after steps, and the losses.
struct Trained {
  Blocks net;
  Tensors losses;
};

Trained train(bool recomputes, int micro_batches = 1) {
  Trained run;
  torch::optim::SGD optimizer(
      run.net->parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  torch::manual_seed(8);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int micro = 0; micro < micro_batches; ++micro) {
      const auto x = values({4, 3, 6, 6}, step + 0.3 * micro);
      const auto loss =
          torch::cross_entropy_loss(run.net->forward(x, recomputes), torch::arange(4));
      loss.backward();
      run.losses.push_back(loss.detach());
    }
    optimizer.step();
  }
  // Draws after the steps are the same if backward left the generator as it was.
  run.losses.push_back(torch::rand({3}));
  return run;
}

void expect_equal(const Trained& found, const Trained& wanted) {
  const auto compare = [](const auto& a, const auto& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(a[i].equal(b[i])) << i;
    }
  };
  compare(found.losses, wanted.losses);
  compare(found.net->buffers(), wanted.net->buffers());
  compare(found.net->parameters(), wanted.net->parameters());
  for (size_t i = 0; i < wanted.net->parameters().size(); ++i) {
    EXPECT_TRUE(
        found.net->parameters()[i].grad().equal(wanted.net->parameters()[i].grad()));
  }
}

TEST(Checkpoint, TrainsWithTheBitsOfTheSameNetworkWithoutIt) {
  expect_equal(train(true), train(false));
  expect_equal(train(true, 3), train(false, 3));
}

TEST(Checkpoint, KeepsOnlyTheInputs) {
  c10::weak_intrusive_ptr<c10::TensorImpl> inner{leaf({1}, 0).getIntrusivePtr()};
  auto x = leaf({4, 4}, 0);
  const auto y = checkpoint(
      [&](const Tensor& in) {
        const auto squares = in.tanh();
        inner = c10::weak_intrusive_ptr<c10::TensorImpl>(squares.getIntrusivePtr());
        return squares.exp();
      },
      x);
  EXPECT_TRUE(inner.expired());
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::autograd::grad({x.tanh().exp().sum()}, {x})[0]));
}

TEST(Checkpoint, GradientsReachInputsParametersAndCapturedTensors) {
  const auto gradients = [](bool recomputes) {
    auto x = leaf({3, 3}, 0);
    auto y = leaf({3, 3}, 1);
    auto weight = leaf({3, 3}, 2);
    auto outer = leaf({3, 3}, 3);
    const auto captured = outer.sin();
    const auto f = [=](const Tensor& a, const Tensors& more) {
      const auto product = a.matmul(weight) + captured;
      return std::make_tuple(product * more[0], product.argmax(1), more[1]);
    };
    const Tensors more = {y.exp(), y};
    const auto [z, index, same] = recomputes ? checkpoint(f, x, more) : f(x, more);
    EXPECT_FALSE(index.requires_grad());
    (z.square().sum() + (same * index.to(torch::kDouble)).sum() + weight.sum())
        .backward();
    return Tensors{x.grad(), y.grad(), weight.grad(), outer.grad()};
  };
  const auto found = gradients(true);
  const auto wanted = gradients(false);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(found[i].equal(wanted[i])) << i;
  }
}

TEST(Checkpoint, HooksOfParametersRunOnce) {
  auto weight = leaf({3}, 0);
  auto x = leaf({3}, 1);
  int calls = 0;
  weight.register_hook([&](const Tensor& gradient) {
    ++calls;
    return gradient * 2;
  });
  const auto f = [&](const Tensor& in) { return (in * weight).sin() * weight; };
  checkpoint(f, checkpoint(f, x)).sum().backward();
  EXPECT_EQ(calls, 1);
  const auto wanted = torch::autograd::grad({f(f(x)).sum()}, {weight})[0];
  EXPECT_TRUE(weight.grad().allclose(wanted * (calls == 1 ? 2 : 1), 1e-14));
}

TEST(Checkpoint, CanBeNested) {
  const auto run = [](bool recomputes) {
    auto x = leaf({4}, 0);
    auto weight = leaf({4}, 1);
    int calls = 0;
    const auto inner = [&](const Tensor& in) {
      ++calls;
      return (in * weight).tanh();
    };
    const auto outer = [&](const Tensor& in) {
      return recomputes ? checkpoint(inner, checkpoint(inner, in).exp()).exp()
                        : inner(inner(in).exp()).exp();
    };
    (recomputes ? checkpoint(outer, x) : outer(x)).sum().backward();
    EXPECT_EQ(calls, recomputes ? 6 : 2);
    return Tensors{x.grad(), weight.grad()};
  };
  EXPECT_TRUE(run(true)[0].equal(run(false)[0]));
  EXPECT_TRUE(run(true)[1].equal(run(false)[1]));
}

TEST(Checkpoint, SecondDerivativesAndRetainGraphWork) {
  auto x = leaf({4}, 0);
  auto weight = leaf({4}, 1);
  const auto f = [&](const Tensor& in) { return (in * weight).tanh().pow(3); };
  const auto second = [&](const Tensor& y) {
    const auto first =
        torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.square().sum()}, {x, weight}, {}, true);
  };
  const auto found = second(checkpoint(f, x));
  const auto wanted = second(f(x));
  EXPECT_TRUE(found[0].allclose(wanted[0], 1e-13));
  EXPECT_TRUE(found[1].allclose(wanted[1], 1e-13));
  EXPECT_GT(found[1].abs().max().item<double>(), 0.01);

  const auto y = checkpoint(f, x).sum();
  const auto first = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0];
  EXPECT_TRUE(torch::autograd::grad({y}, {x})[0].equal(first));
}

TEST(Checkpoint, RepeatsAutocast) {
  const auto run = [](bool recomputes) {
    auto x = leaf({8, 8}, 0).detach().to(torch::kFloat).requires_grad_();
    auto weight = leaf({8, 8}, 1).detach().to(torch::kFloat).requires_grad_();
    const auto f = [=](const Tensor& in) { return in.matmul(weight).matmul(weight); };
    Tensor y;
    {
      const Autocast autocast(true, at::kCPU);
      y = recomputes ? checkpoint(f, x) : f(x);
    }
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    y.sum().backward();
    return Tensors{y, x.grad(), weight.grad()};
  };
  const auto found = run(true);
  const auto wanted = run(false);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(found[i].equal(wanted[i])) << i;
  }
}

TEST(Checkpoint, BuffersOfFunctionsChangeOnce) {
  torch::nn::BatchNorm1d norm(3);
  auto x = values({5, 3}, 0).to(torch::kFloat).requires_grad_();
  CheckpointOptions options;
  options.buffers = norm->buffers();
  checkpoint(
      options, [&](const Tensor& in) { return norm(in).exp(); }, x)
      .sum()
      .backward();
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  torch::nn::BatchNorm1d plain(3);
  plain(x.detach());
  EXPECT_TRUE(norm->running_mean.equal(plain->running_mean));
  EXPECT_TRUE(norm->running_var.equal(plain->running_var));
}

TEST(Checkpoint, WithoutGradientsOnlyRunsTheFunction) {
  const torch::NoGradGuard no_grad;
  auto x = leaf({3}, 0);
  EXPECT_FALSE(checkpoint([](const Tensor& in) { return in * 2; }, x).requires_grad());
}

TEST(Checkpoint, SecondBackwardWithoutRetainGraphIsAnError) {
  auto x = leaf({3}, 0);
  const auto y = checkpoint([](const Tensor& in) { return in.sin(); }, x);
  y.sum().backward();
  EXPECT_THAT(
      error_of<Error>([&] { y.sum().backward(); }),
      HasSubstr("pass retain_graph = true to the first backward"));
}

TEST(Checkpoint, OtherResultsInBackwardAreAnError) {
  auto x = leaf({3}, 0);
  auto other = leaf({3}, 1);
  const auto changing = [&](const auto& in_backward) {
    int calls = 0;
    const auto y = checkpoint(
        [&, calls](const Tensor& in) mutable {
          return ++calls == 1 ? in.sin() : in_backward(in);
        },
        x);
    return error_of<Error>([&] { y.sum().backward(); });
  };
  EXPECT_THAT(
      changing([](const Tensor& in) { return in.sin().narrow(0, 0, 2); }),
      HasSubstr(
          "result 0 is Double of shape [2] in backward, expected Double of shape [3]"));
  EXPECT_THAT(
      changing([](const Tensor& in) { return in.detach(); }),
      HasSubstr("0 results need a gradient in backward, expected 1"));
  EXPECT_THAT(
      changing([&](const Tensor& in) { return in.sin() * other; }),
      HasSubstr("uses a tensor in backward that it did not use in forward"));
}

// A network with dropout, of which a part is recomputed.
struct PartImpl : torch::nn::Module {
  explicit PartImpl(double p) : dropout(torch::nn::DropoutOptions(p)) {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(6, 6));
    register_module("dropout", dropout);
  }
  Tensor forward(const Tensor& x) {
    const auto f = [this](const Tensor& in) { return dropout(torch::tanh(layer(in))); };
    return recomputes ? checkpoint(f, x) : f(x);
  }
  bool recomputes = true;
  torch::nn::Linear layer{nullptr};
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Part);

TEST(Checkpoint, WorksInACompiledNetwork) {
  const auto x = values({4, 6}, 0).to(torch::kFloat);
  const auto gradient = [&](bool recomputes, bool compiles) {
    Part net(0.0);
    net->recomputes = recomputes;
    const auto fast = compile(net, x);
    EXPECT_EQ(fast.obstacle(), "");
    for (int i = 0; i < 2; ++i) {
      (compiles ? fast(x) : net->forward(x)).square().sum().backward();
    }
    return net->layer->weight.grad().clone();
  };
  EXPECT_TRUE(gradient(true, true).equal(gradient(false, false)));
  // A recording would draw other numbers in backward.
  EXPECT_THAT(compile(Part(0.5), x).obstacle(), HasSubstr("draws random numbers"));
}

}  // namespace tandem::checkpoint_test
