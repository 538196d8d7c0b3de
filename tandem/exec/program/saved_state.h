#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace tandem {

/// Copies of the state that a recording changes: tensors, for instance running
/// statistics, and LibTorch's generator for the CPU.
class SavedState {
 public:
  SavedState();

  void save(const at::Tensor& tensor) {
    saved_.emplace_back(tensor.detach(), tensor.detach().clone());
  }
  /// Writes the copies back.
  void restore() const;

 private:
  at::Tensor generator_;
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;
};

}  // namespace tandem
