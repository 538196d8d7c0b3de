#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Warns if a model from make_function_model() has hidden state: running statistics of
/// batch norm that are not in its buffers, or a training mode that it cannot change.
/// Checks the first forward pass in training and the first in evaluation.
///
/// In training, it searches the autograd graph for LibTorch's batch norm, on CPUs and
/// with cuDNN. In evaluation, it detects random numbers from the CPU's global
/// generator, such as dropout's. It does not detect other buffers, other modes, or
/// modules that compute without autograd. Not thread-safe.
class HiddenState {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;

  /// `has_mode` is true if the model has a function that sets its mode.
  HiddenState(std::vector<NamedTensor> buffers, bool has_mode)
      : buffers_(std::move(buffers)), has_mode_(has_mode) {}

  /// Returns forward(input) and checks that pass.
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
