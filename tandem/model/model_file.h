#pragma once

#include <memory>
#include <string>

#include "tandem/model/model.h"

namespace tandem {

/// Returns the network of a file of torch.export (graph/pt2.h) or TorchScript
/// (script_model.h). Only a file with a name that ends in ".pt" can be TorchScript.
///
/// A network of torch.export is converted to `options.dtype`, and is trained like a
/// model of tandem. Its initial weights are those in the file; `options.seed` has no
/// effect.
///
/// Throws the errors of read_pt2() or load_script_model(). For torch.export, throws
/// ConfigError if the type of the network's input does not fit `options.index_input`,
/// or if the shape of one sample is not `options.input`. For TorchScript, throws
/// ConfigError if `options` selects a dtype other than float32, turns dropout off, or
/// sets stack_statistics.
[[nodiscard]] std::unique_ptr<Model> load_model_file(
    const std::string& path, const ModelOptions& options);

}  // namespace tandem
