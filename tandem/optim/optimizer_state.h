#pragma once

#include <torch/optim/optimizer.h>

#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace tandem {

/// Type of torch::optim::Optimizer::state().
using OptimizerStateMap =
    std::decay_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

/// Returns the key of a parameter in Optimizer::state(), which is its address. Before
/// LibTorch 2, the key is the address as text.
template <typename Key = OptimizerStateMap::key_type>
Key state_key(const at::Tensor& parameter) {
  void* const address = parameter.unsafeGetTensorImpl();
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << address;
    return text.str();
  } else {
    return address;
  }
}

}  // namespace tandem
