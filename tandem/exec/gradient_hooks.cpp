#include "tandem/exec/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace tandem {

namespace autograd = torch::autograd;

namespace {

class CallBefore : public autograd::FunctionPreHook {
 public:
  explicit CallBefore(std::function<void()> call) : call_(std::move(call)) {}

  autograd::variable_list operator()(
      const autograd::variable_list& gradients) override {
    call_();
    return gradients;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

GradientHooks::GradientHooks(ModelArenas& arenas, std::function<void(size_t)> written)
    : written_(std::move(written)) {
  for (size_t slot = 0; slot < arenas.tensors().size(); ++slot) {
    if (!arenas.tensors()[slot].requires_grad()) {
      continue;
    }
    const auto accumulator = autograd::impl::grad_accumulator(arenas.tensors()[slot]);
    auto hook = [this, slot](
                    const autograd::variable_list& outputs,
                    const autograd::variable_list&) {
      written_(slot);
      return outputs;
    };
    const auto key = accumulator->add_post_hook(
        std::make_unique<autograd::utils::LambdaPostHook>(std::move(hook)));
    // Keeps the accumulator alive, because the tensor has only a weak pointer to it.
    removals_.emplace_back([accumulator, key] { accumulator->del_post_hook(key); });
  }
}

GradientHooks::~GradientHooks() {
  for (const auto& remove : removals_) {
    remove();
  }
}

void before_backward(const at::Tensor& tensor, std::function<void()> call) {
  // A hook of the tensor would move to another function if an operator later changes
  // the tensor in place.
  if (const auto& function = tensor.grad_fn()) {
    function->add_pre_hook(std::make_unique<CallBefore>(std::move(call)));
  }
}

}  // namespace tandem
