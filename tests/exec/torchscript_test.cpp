// A TorchScript module trains like any other model.

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include "tandem/comm/communicator.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/parallel/strategy.h"

namespace tandem::torchscript_test {

torch::jit::Module make_script() {
  torch::jit::Module module("linear");
  module.register_parameter("weight", at::randn({3, 4}).set_requires_grad(true), false);
  module.register_parameter("bias", at::randn({3}).set_requires_grad(true), false);
  module.define(R"(
    def forward(self, x):
      return torch.matmul(x, self.weight.t()) + self.bias
  )");
  return module;
}

std::unique_ptr<Model> wrap(torch::jit::Module module) {
  std::vector<NamedTensor> parameters;
  for (const auto& entry : module.named_parameters()) {
    parameters.push_back({entry.name, entry.value});
  }
  return make_function_model(
      [module](const at::Tensor& x) mutable { return module.forward({x}).toTensor(); },
      parameters);
}

TEST(TorchScript, TrainsThroughTheEagerExecutor) {
  auto module = make_script();
  const auto model = wrap(module);
  ModelArenas arenas(model->parameters(), {});
  OptimizerOptions sgd;
  sgd.lr = 0.1;
  const auto optimizer = make_optimizer(sgd, arenas.parameters(), arenas.gradients());
  const auto executor = make_executor(ExecutorKind::automatic, *model, arenas, {});
  const auto comm = make_single_communicator();
  const auto strategy = make_strategy({}, {*comm, *executor, arenas, *optimizer});
  strategy->start();

  Batch batch;
  batch.inputs = at::randn({8, 4});
  batch.targets = at::zeros({8}, at::kLong);
  batch.global_count = 8;
  const auto before = module.attr("bias").toTensor().detach().clone();
  StepContext context;
  context.lr = 0.1;
  const double first = strategy->train_step({batch}, context).values().loss;
  context.step = 1;
  const double second = strategy->train_step({batch}, context).values().loss;
  EXPECT_LT(second, first);
  // The script's parameter is in the arena.
  EXPECT_FALSE(module.attr("bias").toTensor().detach().equal(before));
}

}  // namespace tandem::torchscript_test
