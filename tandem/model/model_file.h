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
/// Throws the errors of read_pt2() or load_script_model(). Throws ConfigError if a
/// sample of the network's input does not have the shape `options.input`, or if a
/// TorchScript module cannot follow `options`.
[[nodiscard]] std::unique_ptr<Model> load_model_file(
    const std::string& path, const ModelOptions& options);

}  // namespace tandem
