#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Warns of what a function model (make_function_model) does not name: running
/// statistics of batch norm that are none of its buffers, and a training mode that it
/// cannot change. It looks at the first forward pass in each mode, once.
///
/// Seen in the autograd graph of training: LibTorch's batch norm on CPUs and over
/// cuDNN. Seen in evaluation: random numbers of the CPU that are drawn meanwhile
/// (dropout). Other buffers, other modes, and modules that compute without autograd are
/// not seen.
class HiddenState {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;

  /// `has_mode`: whether the model is told of its mode.
  HiddenState(std::vector<NamedTensor> buffers, bool has_mode)
      : buffers_(std::move(buffers)), has_mode_(has_mode) {}

  /// Returns forward(input), having looked.
  at::Tensor watch(const Forward& forward, const at::Tensor& input, bool training);

 private:
  void look_at_graph(const at::Tensor& output) const;
  bool names(const at::Tensor& buffer) const;

  std::vector<NamedTensor> buffers_;
  bool has_mode_;
  bool trained_ = false;
  bool evaluated_ = false;
};

}  // namespace tandem
