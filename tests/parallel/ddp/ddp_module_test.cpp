// Changes of a LibTorch module after DistributedDataParallel was made. Each is an error
// at the next backward, on all ranks, before any bucket is sent.

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <string>

#include "tandem/base/error.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::ddp_module_test {

using testing::Each;
using testing::HasSubstr;

struct Net : torch::nn::Module {
  Net() {
    register_module("fc", fc);
    register_module("bn", bn);
    factor = register_parameter("factor", at::ones({2}), /*requires_grad=*/false);
  }

  at::Tensor forward(const at::Tensor& x) {
    return bn(fc(x)) * factor;
  }
  void replace_fc() {
    fc = replace_module("fc", torch::nn::Linear(3, 2));
  }
  void remove_bn() {
    unregister_module("bn");
  }

  torch::nn::Linear fc = torch::nn::Linear(3, 2);
  torch::nn::BatchNorm1d bn = torch::nn::BatchNorm1d(2);
  at::Tensor factor;
};

struct Change {
  const char* name;
  std::function<void(Net&)> make;
  const char* error;
};

std::ostream& operator<<(std::ostream& out, const Change& change) {
  return out << change.name;
}

class ChangedModule : public testing::TestWithParam<Change> {};

TEST_P(ChangedModule, IsAnErrorAtTheNextBackward) {
  for (int size = 1; size <= 4; ++size) {
    const auto messages = on_each_rank("thread", size, [](Communicator& comm) {
      Net net;
      const DistributedDataParallel ddp(net, comm);
      const auto backward = [&] {
        const auto x = at::ones({4, 3}, net.fc->weight.options().requires_grad(false));
        net.forward(x).square().sum().backward();
      };
      backward();
      GetParam().make(net);
      return error_of<ConfigError>(backward);
    });
    EXPECT_THAT(messages, Each(HasSubstr(GetParam().error))) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, ChangedModule,
    testing::Values(
        Change{
            "MovedToAnotherDtype", [](Net& net) { net.to(at::kDouble); },
            "'bn.bias' is no longer in its arena"},
        Change{
            "DataReplaced",
            [](Net& net) { net.fc->bias.set_data(net.fc->bias.detach().clone()); },
            "'fc.bias' is no longer in its arena"},
        Change{
            "Frozen", [](Net& net) { net.fc->weight.set_requires_grad(false); },
            "'fc.weight' was frozen after"},
        Change{
            "MadeTrainable", [](Net& net) { net.factor.set_requires_grad(true); },
            "'factor' became trainable after"},
        Change{
            "ParameterAdded",
            [](Net& net) { net.register_parameter("more", at::zeros({2})); },
            "'more' was added after"},
        Change{
            "ModuleReplaced", [](Net& net) { net.replace_fc(); },
            "'fc.weight' was replaced after"},
        Change{
            "ModuleRemoved", [](Net& net) { net.remove_bn(); },
            "'bn.weight' was removed after"},
        Change{
            "BufferMoved",
            [](Net& net) { net.bn->running_mean.set_data(at::zeros({2})); },
            "'bn.running_mean' was moved after"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace tandem::ddp_module_test
