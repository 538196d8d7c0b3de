#pragma once

#include <string>
#include <vector>

#include "tandem/config/name_patterns.h"
#include "tandem/core/arena.h"
#include "tandem/core/module_state.h"

namespace tandem {

/// Reads a model's tensors from a checkpoint's directory, a safetensors file, or a file
/// of Python's torch.save(model.state_dict(), path) (torch_file.h). The format is
/// detected from the content, not from the name (weights_format.h). If all names begin
/// with "module." or "_orig_mod.", the prefixes of PyTorch's DistributedDataParallel
/// and torch.compile, removes them.
///
/// Throws DataError if the file is damaged or has another format. A file of a
/// checkpoint counts as damaged if its hash is missing.
[[nodiscard]] std::vector<NamedTensor> read_weights(const std::string& path);

/// Reads weights and copies them in place to the tensors in `targets` with the same
/// names, converted to the targets' dtypes. Copies either all tensors or none. Tensors
/// that match `skip` keep their values; they may be missing in the file or have another
/// shape there. If no name is in `targets`, removes "module.", "_orig_mod." and
/// "model." from the names that all begin with it.
///
/// Throws the errors of read_weights(), and DataError if a value is NaN or a parameter
/// is infinite. Also throws ConfigError with the first tensor that does not match
/// `skip` and is missing, has another shape, or is only in the file (as with
/// strict=True). Also throws ConfigError with the first pattern of `skip` that matches
/// no tensor of the model or of the file.
void load_weights(
    const std::string& path, const std::vector<NamedTensor>& targets,
    const NamePatterns& skip = {});

/// Loads weights into the tensors of a torch::nn module, in place. For a module holder
/// `net`, pass `*net`.
template <typename Module>
void load_weights(const std::string& path, const Module& module) {
  load_weights(path, module_state(module));
}

/// Writes tensors, with their dtypes, to a file that Python can load. The ending of the
/// name determines the format:
///
///   net.safetensors   safetensors.torch.load_file(path)
///   net.pt, net.pth   torch.load(path, weights_only=True)
///
/// Replaces the file atomically, so readers see either the old or the new file.
/// Supports the dtypes of write_torch_file().
///
/// Throws ConfigError for a name with another ending, an undefined tensor, another
/// dtype, or a name that occurs twice; DataError if the file cannot be written. After
/// an error, an old file is unchanged.
void save_weights(const std::string& path, const std::vector<NamedTensor>& tensors);

/// Writes the parameters and buffers of a torch::nn module under the names of Python's
/// state_dict(), so that load_state_dict(strict=True) accepts them. For a module holder
/// `net`, pass `*net`.
template <typename Module>
void save_weights(const std::string& path, const Module& module) {
  save_weights(path, module_state(module));
}

}  // namespace tandem
