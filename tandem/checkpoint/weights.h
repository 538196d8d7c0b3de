#pragma once

#include <string>
#include <vector>

#include "tandem/config/name_patterns.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Reads a model's tensors from a checkpoint's directory, a safetensors file, or a file
/// of Python's torch.save(model.state_dict(), path) (torch_file.h). The format is
/// detected from the content, not from the name (weights_format.h). Removes the prefix
/// "module." that PyTorch's DistributedDataParallel adds to the tensors' names.
///
/// Throws DataError if the file is damaged or has another format. A file of a
/// checkpoint counts as damaged if its hash is missing.
[[nodiscard]] std::vector<NamedTensor> read_weights(const std::string& path);

/// Reads weights and copies them in place to the tensors in `targets` with the same
/// names, converted to the targets' dtypes. Copies either all tensors or none. Tensors
/// that match `skip` keep their values; they may be missing in the file or have another
/// shape there.
///
/// Throws as read_weights(). Also throws ConfigError with the first other tensor that
/// is missing, has another shape, or is only in the file (as strict=True), or with the
/// first pattern of `skip` that matches no tensor of the model and of the file.
void load_weights(
    const std::string& path, const std::vector<NamedTensor>& targets,
    const NamePatterns& skip = {});

}  // namespace tandem
