#pragma once

#include <utility>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

// These templates need no headers of LibTorch's modules.

/// Returns the tensors of `dict`, the result of a module's named_parameters() or
/// named_buffers(), in its order. Leaves out undefined tensors, such as the running
/// statistics of a batch norm that does not track statistics.
template <typename Dict>
std::vector<NamedTensor> named_tensors(const Dict& dict) {
  std::vector<NamedTensor> list;
  for (const auto& item : dict) {
    if (item.value().defined()) {
      list.push_back({item.key(), item.value()});
    }
  }
  return list;
}

/// Returns the parameters and then the buffers of a torch::nn module, under the names
/// of Python's state_dict() for the same modules. The tensors share the module's
/// memory. Tied weights appear under each of their names, as in Python.
template <typename Module>
[[nodiscard]] std::vector<NamedTensor> module_state(const Module& module) {
  auto state = named_tensors(module.named_parameters());
  for (auto& buffer : named_tensors(module.named_buffers())) {
    state.push_back(std::move(buffer));
  }
  return state;
}

}  // namespace tandem
