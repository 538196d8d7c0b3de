// Compares DataParallel with PyTorch: outputs, gradients and buffers of one to four
// replicas, in float64. The cases and the model are those of the peer,
// tests/parity/data_parallel_peer.py.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tandem/parallel/ddp/data_parallel_module.h"
#include "tests/parity/numbers.h"
#include "tests/parity/python.h"

namespace tandem::data_parallel_parity_test {

using Json = nlohmann::json;

constexpr int kSteps = 3;
constexpr double kTolerance = 1e-12;

// The counterpart of the peer's Net.
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() {
    NetImpl::reset();
  }

  void reset() override {
    w1 = register_parameter("w1", numbers(0, {4, 3}));
    b1 = register_parameter("b1", numbers(1, {4}));
    scale = register_parameter("scale", numbers(2, {4}));
    shift = register_parameter("shift", numbers(3, {4}));
    w2 = register_parameter("w2", numbers(4, {2, 4}));
    frozen = register_parameter("frozen", numbers(5, {2}), false);
    running_mean = register_buffer("running_mean", numbers(20, {4}));
    running_var = register_buffer("running_var", 1 + numbers(30, {4}).abs());
    memory = register_buffer("memory", numbers(40, {2}));
    count = register_buffer("count", at::tensor(7, at::kLong));
  }

  std::tuple<at::Tensor, at::Tensor> forward(
      const at::Tensor& x, const at::Tensor& factor) {
    const auto h = at::batch_norm(
        at::linear(x, w1, b1), scale, shift, running_mean, running_var, is_training(),
        0.1, 1e-5, false);
    const auto y = (at::linear(at::relu(h), w2) + frozen + memory) * factor;
    if (is_training()) {
      count.add_(1);
      memory.mul_(0.5).add_(y.detach().mean(0), 0.25);
    }
    return {y, h.sum(1)};
  }

  at::Tensor w1, b1, scale, shift, w2, frozen, running_mean, running_var, memory, count;
};
TORCH_MODULE(Net);

struct Case {
  std::string name;
  int64_t rows = 7;
  bool evaluated = false;
  bool of_inputs = false;
  int forwards = 1;
  bool directly = false;
  bool penalty = false;
};

std::vector<Case> cases() {
  std::vector<Case> all = {{"seven_rows"}, {"eight_rows", 8}, {"five_rows", 5}};
  all.push_back({"evaluated", 7, true});
  all.push_back({"inputs_with_gradients", 7, false, true});
  all.push_back({"two_forwards", 7, false, false, 2});
  all.push_back({"directly_too", 7, false, false, 1, true});
  all.push_back({"penalty", 8, false, false, 1, false, true});
  return all;
}

struct Seen {
  std::vector<Numbers> outputs;
  std::vector<Numbers> gradients;
  std::vector<Numbers> buffers;
  std::vector<Numbers> parameters;
  std::vector<std::string> names;
};

Numbers flat_of_all(const std::vector<at::Tensor>& tensors) {
  Numbers all;
  for (const auto& tensor : tensors) {
    const auto values = flat(tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<at::Tensor> trainable_of(torch::nn::Module& module) {
  std::vector<at::Tensor> found;
  for (const auto& parameter : module.parameters()) {
    if (parameter.requires_grad()) {
      found.push_back(parameter);
    }
  }
  return found;
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> gradients;
  for (const auto& tensor : tensors) {
    gradients.push_back(tensor.grad());
  }
  return gradients;
}

// The steps of the peer's run().
class Steps {
 public:
  Steps(const Case& which, int64_t replicas)
      : which_(which), model_(net_, replicas), trainable_(trainable_of(*net_)) {
    model_->train(!which.evaluated);
  }

  void step(Seen& seen) {
    at::Tensor loss = at::zeros({}, at::kDouble);
    std::vector<at::Tensor> wanted = trainable_;
    for (int number = 0; number < which_.forwards + which_.directly; ++number) {
      const auto x = numbers(2 * salt_ + 1, {which_.rows, 3});
      x.set_requires_grad(which_.of_inputs);
      const auto factor = 1 + numbers(3 * salt_ + 2, {which_.rows, 1});
      ++salt_;
      const bool own = which_.directly && number == which_.forwards;
      const auto [y, sums] =
          own ? net_->forward(x, factor) : model_->forward(x, factor);
      loss = loss + y.square().mean() + sums.square().mean() / 8;
      seen.outputs.push_back(flat_of_all({y, sums}));
      if (which_.of_inputs) {
        wanted.push_back(x);
      }
    }
    (which_.penalty ? loss + penalty(loss) : loss).backward();
    seen.gradients.push_back(flat_of_all(gradients_of(wanted)));
    seen.buffers.push_back(flat_of_all(net_->buffers()));
    const at::NoGradGuard guard;
    for (auto& parameter : trainable_) {
      parameter.add_(parameter.grad(), -0.05);
      parameter.mutable_grad() = at::Tensor();
    }
  }

  void finish(Seen& seen) {
    seen.parameters = {flat_of_all(net_->parameters())};
    for (const auto& entry : model_->named_parameters()) {
      seen.names.push_back(entry.key());
    }
    for (const auto& entry : model_->named_buffers()) {
      seen.names.push_back(entry.key());
    }
  }

 private:
  at::Tensor penalty(const at::Tensor& loss) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const auto& gradient :
         torch::autograd::grad({loss}, trainable_, {}, c10::nullopt, true)) {
      sum = sum + gradient.square().sum();
    }
    return sum / 16;
  }

  const Case& which_;
  Net net_;
  DataParallel<Net> model_;
  std::vector<at::Tensor> trainable_;
  int64_t salt_ = 0;
};

Seen run(const Case& which, int64_t replicas) {
  Steps steps(which, replicas);
  Seen seen;
  for (int step = 0; step < kSteps; ++step) {
    steps.step(seen);
  }
  steps.finish(seen);
  return seen;
}

class DataParallelParity : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (python_has("torch")) {
      const auto result =
          run_python({"-B", source_dir() + "/tests/parity/data_parallel_peer.py"});
      // Warnings of PyTorch may precede the JSON.
      const size_t begin = result.output.find("{\"seven_rows\"");
      if (begin != std::string::npos) {
        peer_ = Json::parse(result.output.substr(begin), nullptr, false);
      }
    }
  }

  void SetUp() override {
    TANDEM_NEEDS_PYTHON_TORCH();
    ASSERT_TRUE(peer_.is_object()) << "data_parallel_peer.py gave no JSON";
  }

  static inline Json peer_;
};

TEST_F(DataParallelParity, EachCaseMatchesPyTorch) {
  ASSERT_EQ(peer_.size(), cases().size());
  for (const auto& which : cases()) {
    double largest = 0;
    for (int64_t replicas = 1; replicas <= 4; ++replicas) {
      SCOPED_TRACE(which.name + " on " + std::to_string(replicas));
      const auto ours = run(which, replicas);
      const auto& theirs = peer_.at(which.name).at(std::to_string(replicas));
      const double off[] = {
          difference(ours.outputs, theirs["outputs"]),
          difference(ours.gradients, theirs["gradients"]),
          difference(ours.buffers, theirs["buffers"]),
          difference(ours.parameters[0], theirs["parameters"].get<Numbers>())};
      EXPECT_LE(off[0], kTolerance) << "outputs";
      EXPECT_LE(off[1], kTolerance) << "gradients";
      EXPECT_LE(off[2], kTolerance) << "buffers";
      EXPECT_LE(off[3], kTolerance) << "parameters at the end";
      EXPECT_EQ(ours.names, theirs["names"].get<std::vector<std::string>>());
      largest = std::max(largest, *std::max_element(off, off + 4));
    }
    std::printf("%-22s largest difference %.1e\n", which.name.c_str(), largest);
  }
}

// Results differ between numbers of replicas, because batch norm uses chunks.
TEST_F(DataParallelParity, ResultsDependOnTheNumberOfReplicas) {
  const auto seen = run(cases()[0], 3);
  const auto& of_two = peer_.at("seven_rows").at("2");
  EXPECT_GT(difference(seen.outputs, of_two["outputs"]), 1e-3);
  EXPECT_GT(difference(seen.buffers, of_two["buffers"]), 1e-3);
}

}  // namespace tandem::data_parallel_parity_test
