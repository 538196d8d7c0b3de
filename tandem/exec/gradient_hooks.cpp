#include "tandem/exec/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

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

// Type that depends on LibTorch's version: std::shared_ptr in older versions, an
// intrusive pointer in newer versions.
using NodePtr = decltype(autograd::impl::grad_accumulator(at::Tensor()));

struct GradientHooks::Hook {
  // Keeps the accumulator alive, because the tensor has only a weak pointer to it.
  NodePtr accumulator;
  uintptr_t key;
};

struct GradientHooks::State {
  std::function<void(size_t)> written;
  std::vector<Hook> hooks;
};

GradientHooks::GradientHooks(ModelArenas& arenas, std::function<void(size_t)> written)
    : state_(std::make_unique<State>()) {
  state_->written = std::move(written);
  for (size_t slot = 0; slot < arenas.tensors().size(); ++slot) {
    if (!arenas.tensors()[slot].requires_grad()) {
      continue;
    }
    auto accumulator = autograd::impl::grad_accumulator(arenas.tensors()[slot]);
    auto hook = [state = state_.get(), slot](
                    const autograd::variable_list& outputs,
                    const autograd::variable_list&) {
      state->written(slot);
      return outputs;
    };
    const auto key = accumulator->add_post_hook(
        std::make_unique<autograd::utils::LambdaPostHook>(std::move(hook)));
    state_->hooks.push_back({std::move(accumulator), key});
  }
}

GradientHooks::~GradientHooks() {
  for (auto& hook : state_->hooks) {
    hook.accumulator->del_post_hook(hook.key);
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
