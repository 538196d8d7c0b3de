#pragma once

#include <string>
#include <vector>

#include "tandem/model/model.h"

namespace tandem {

/// Returns the text that PyTorch prints for a network of the tutorials: the modules in
/// order of registration, without functions such as F.relu. `layers` is the result of
/// layers_of(kind).
std::string module_tree(ModelKind kind, const std::vector<Layer>& layers);

/// Name, output shape and number of parameters of a layer.
struct LayerSummary {
  // Path of the layer's module, such as "conv1". If no module is known, the layer's
  // function, such as "relu".
  std::string name;
  std::vector<Size> output;
  int64_t num_parameters = 0;
  // Floating-point operations of the forward pass for one sample: two for each
  // multiplication.
  double flops = 0;
  // Index of the layer's node in Graph::nodes.
  size_t node = 0;
};

/// Returns a summary of each layer, in order of execution. Leaves out nodes that change
/// a buffer in place.
std::vector<LayerSummary> summarise(const Graph& graph);

}  // namespace tandem
