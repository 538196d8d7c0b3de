#pragma once

#include <string>
#include <vector>

#include "tandem/model/model.h"

namespace tandem {

/// Returns the text that PyTorch prints for the tutorial's network: its modules in
/// order of registration. Functions such as F.relu are not modules. `layers`: the
/// result of layers_of(kind).
std::string module_tree(ModelKind kind, const std::vector<Layer>& layers);

/// A layer with the shape of its output and its number of parameters.
struct LayerSummary {
  // "conv1", or the function's name for a layer without parameters: "relu".
  std::string name;
  // Shape of the output for a sample, without the batch.
  std::vector<int64_t> output;
  int64_t num_parameters = 0;
};

/// Returns a summary of each layer, in order of execution. Runs one forward pass in
/// evaluation mode.
std::vector<LayerSummary> summarise(Model& model, const InputShape& input);

}  // namespace tandem
