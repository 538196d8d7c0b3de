#pragma once

#include <memory>
#include <string>

#include "tandem/model/model.h"

namespace tandem {

/// Returns whether a file is a TorchScript module (torch.jit.save) whose name ends in
/// ".pt". Returns false for a file with another name, such as NET.pt2, so that no code
/// in that file runs. Also returns false for other files, such as a file of torch.save,
/// and for files that are missing or damaged.
bool is_script_file(const std::string& path);

/// Returns a model that runs a TorchScript module on the CPU, without converting it to
/// a graph.
///
/// The names of parameters and buffers are those of Python's state_dict(). A tensor
/// with two names keeps the first name. Training and evaluation set the mode of a
/// scripted module. A module from torch.jit.trace() keeps the mode in which it was
/// traced.
///
/// LibTorch parses the file and runs the code in it, so the file must come from a
/// trusted source.
///
/// Throws DataError if LibTorch cannot read the file. Throws ConfigError if the file
/// has compressed or too large entries (TorchZip), or if the module has no parameters
/// or does not map one tensor to one tensor.
[[nodiscard]] std::unique_ptr<Model> load_script_model(const std::string& path);

}  // namespace tandem
