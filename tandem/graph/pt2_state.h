#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// A tensor of a state dict with all of its names, in the order of the state dict.
struct TiedTensor {
  std::vector<std::string> names;
  at::Tensor tensor;
};

/// Finds tensors that are stored once and have several names (tied weights). Keeps the
/// order of their first names.
///
/// Throws ConfigError if two tensors share only a part of their memory, which arenas
/// cannot express. `path`: the file, for messages.
std::vector<TiedTensor> find_tied(
    const std::vector<NamedTensor>& state, const std::string& path);

}  // namespace tandem
