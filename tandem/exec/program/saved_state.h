#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace tandem {

/// Copies of the state that a recording changes: tensors, for instance running
/// statistics, and LibTorch's generator for the CPU. The generator belongs to the
/// process, so restoring it also repeats numbers that other threads drew meanwhile. The
/// destructor writes the copies back.
class SavedState {
 public:
  /// Saves the generator if `draws` is true.
  explicit SavedState(bool draws);
  ~SavedState();
  SavedState(const SavedState&) = delete;
  SavedState& operator=(const SavedState&) = delete;

  /// Saves a tensor. Autograd does not see that the destructor changes it.
  void save(const at::Tensor& tensor) {
    saved_.emplace_back(tensor.variable_data(), tensor.detach().clone());
  }

 private:
  // Undefined if the generator is not saved.
  at::Tensor generator_;
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;
};

}  // namespace tandem
