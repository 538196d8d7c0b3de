#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// A tensor of a state dict with all of its names. The names are in the order of the
/// state dict.
struct TiedTensor {
  std::vector<std::string> names;
  at::Tensor tensor;
};

/// Combines entries of a state dict that refer to the same tensor (tied weights).
/// Returns each tensor once, in the order of the first names.
///
/// Throws ConfigError if two tensors share only a part of their memory, which arenas do
/// not support. `path` is the name of the file in errors.
std::vector<TiedTensor> find_tied(
    const std::vector<NamedTensor>& state, const std::string& path);

}  // namespace tandem
