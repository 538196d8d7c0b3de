#pragma once

#include "tandem/formats/onnx_file.h"
#include "tandem/graph/graph.h"

namespace tandem {

/// Returns an ONNX model that computes a graph in evaluation mode: dropout returns its
/// input, and batch norm uses the running statistics. The number of samples is the
/// symbolic dimension "N".
///
/// The input, the output, nodes and values have the names of the graph; parameters and
/// buffers have the names of state_dict(). Dtypes are those of the graph. The model
/// shares the tensors of the graph. `graph` must pass verify().
///
/// Throws ConfigError, with the names of all operators without a counterpart in ONNX,
/// if there are any.
[[nodiscard]] OnnxModel onnx_model(const Graph& graph);

}  // namespace tandem
