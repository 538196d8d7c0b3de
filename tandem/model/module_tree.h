#pragma once

#include <string>
#include <vector>

#include "tandem/model/model.h"

namespace tandem {

/// What print() shows of the tutorial's network in PyTorch: its modules in their order
/// of registration. Functions such as F.relu are no modules. `layers` are those of
/// layers_of(kind).
std::string module_tree(ModelKind kind, const std::vector<Layer>& layers);

/// A layer and what it gives for one input.
struct LayerSummary {
  // "conv1", or the function's name for a layer without parameters: "relu".
  std::string name;
  // Of a sample, without the batch.
  std::vector<int64_t> output;
  int64_t num_parameters = 0;
};

/// The layers in order of execution.
std::vector<LayerSummary> summarise(Model& model, const InputShape& input);

}  // namespace tandem
