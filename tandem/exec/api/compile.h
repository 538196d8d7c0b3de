#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/core/module_state.h"

namespace tandem {

/// A function of one batch, with the tensors that it uses.
struct CompilableFunction {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  // Returns whether the function is in training mode. Empty: always.
  std::function<bool()> is_training;
};

/// A compiled function, which a LibTorch loop calls like the original one. Copies share
/// one state. Not thread-safe.
class CompiledFunction {
 public:
  explicit CompiledFunction(CompilableFunction function);

  /// Returns the function of `input`, with autograd history if gradients are enabled
  /// and needed.
  at::Tensor operator()(const at::Tensor& input) const;

  /// Compiles the function for batches of the size and dtype of `example`, in the mode
  /// that it has now, without an effect on the network. The values do not matter,
  /// unless forward() checks them.
  void prepare(const at::Tensor& example) const;

  /// Returns why the calls run one by one, such as "aten::nonzero returns a tensor
  /// whose size depends on values"; "" if they are compiled.
  [[nodiscard]] const std::string& obstacle() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

/// Compiles a network for your own loop, for batches of the size and dtype of `example`
/// (CompiledFunction::prepare()).
///
///   auto fast = tandem::compile(net, example);
///   ...
///   auto loss = torch::nll_loss(fast(batch.data), batch.target);
///   loss.backward();
///
/// `net` is a module holder or a std::shared_ptr to a torch::nn::Module.
///
/// **Recording.** The first call for each other size and dtype of a batch, and for each
/// mode, records the operators of net->forward() and of its backward pass. Later calls
/// repeat them without autograd and with the kernels of the executor `compiled`:
/// convolutions, batch norms, ReLUs and max pools of images in float32 on CPUs. At most
/// 16 recordings are kept; further sizes run net->forward().
///
/// **As before.** Gradients arrive in .grad of the parameters, through the hooks of
/// autograd, so DistributedDataParallel and optimizers work. net->train() and
/// net->eval() select the mode. Buffers such as running statistics change as in
/// net->forward(). Dropout draws from LibTorch's generator, the same numbers as
/// net->forward(). Several calls can precede their backward passes.
///
/// **Requirement.** forward() may decide only by sizes, the dtype and the mode, not for
/// example by a counter. If it reads values to decide, the network runs call by call,
/// and one line of the log names the operator (obstacle()).
///
/// **Limits.** forward() has one tensor as input and one as output. Second derivatives
/// and a second backward through the same output are errors.
///
/// Source: torch.compile and AOTAutograd (torch/_functorch/aot_autograd.py).
template <typename Net>
[[nodiscard]] CompiledFunction compile(Net net, const at::Tensor& example) {
  CompilableFunction function;
  function.parameters = named_tensors(net->named_parameters());
  function.buffers = named_tensors(net->named_buffers());
  function.is_training = [net]() mutable { return net->is_training(); };
  function.forward = [net](const at::Tensor& x) mutable { return net->forward(x); };
  CompiledFunction compiled(std::move(function));
  compiled.prepare(example);
  return compiled;
}

}  // namespace tandem
