#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Warns if a model from make_function_model() has hidden state. Hidden state is batch
/// norm's running statistics that are not in the model's buffers, or a training mode
/// that the model cannot change. Checks the first forward pass in training mode and the
/// first in evaluation mode.
///
/// In training, it searches the autograd graph for LibTorch's batch norm, on CPUs and
/// with cuDNN. In evaluation, it detects random numbers from the CPU's global
/// generator, such as dropout's. It does not detect other hidden state, or hidden state
/// of modules that compute without autograd. Not thread-safe, except for evaluations
/// after the first evaluation.
class HiddenState {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;

  /// Prepares the checks of a model with these buffers. `has_mode` is true if the model
  /// has a function that sets its mode.
  HiddenState(std::vector<NamedTensor> buffers, bool has_mode)
      : buffers_(std::move(buffers)), has_mode_(has_mode) {}

  /// Returns the output of forward(input). Checks the pass for hidden state if it is
  /// the first in its mode.
  at::Tensor watch(const Forward& forward, const at::Tensor& input, bool training);

 private:
  void check_graph(const at::Tensor& output) const;
  bool names(const at::Tensor& buffer) const;

  std::vector<NamedTensor> buffers_;
  bool has_mode_;
  bool trained_ = false;
  bool evaluated_ = false;
};

}  // namespace tandem
