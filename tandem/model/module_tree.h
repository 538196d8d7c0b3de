#pragma once

#include <string>
#include <vector>

#include "tandem/model/model.h"

namespace tandem {

/// Returns the text that PyTorch prints for the tutorial's network: its modules in
/// order of registration, without functions such as F.relu. `layers` is the result of
/// layers_of(kind).
std::string module_tree(ModelKind kind, const std::vector<Layer>& layers);

/// Name, output shape and number of parameters of a layer.
struct LayerSummary {
  // Name of the layer, such as "conv1". For a layer without parameters, its function,
  // such as "relu".
  std::string name;
  // Shape of the output for one sample, without the batch dimension.
  std::vector<int64_t> output;
  int64_t num_parameters = 0;
};

/// Returns a summary of each layer, in order of execution. Runs one forward pass in
/// evaluation mode.
std::vector<LayerSummary> summarise(Model& model, const InputShape& input);

}  // namespace tandem
