#pragma once

#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Reads a model's tensors from a checkpoint's directory, a safetensors file, or
/// what Python's torch.save(model.state_dict(), path) wrote (torch_file.h); its
/// content says which, not its name (weights_format.h). The prefix "module." of a model
/// that was wrapped in DistributedDataParallel is taken off.
///
/// Throws DataError when the file is damaged or is something else; a checkpoint's file
/// without its hash counts as damaged.
[[nodiscard]] std::vector<NamedTensor> read_weights(const std::string& path);

/// Loads them into `targets` by name, in place, converted to the targets' dtypes:
/// all or nothing.
///
/// Throws as read_weights; ConfigError that names the first tensor that is
/// missing, has another shape, or is in the file only (as strict=True).
void load_weights(const std::string& path, const std::vector<NamedTensor>& targets);

}  // namespace tandem
