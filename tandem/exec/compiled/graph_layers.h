#pragma once

#include <string>
#include <vector>

#include "tandem/graph/graph.h"
#include "tandem/model/layers.h"

namespace tandem {

/// Layers that the compiled executor runs instead of a graph, or the reason why it
/// cannot run the graph.
struct GraphLayers {
  std::vector<Layer> layers;
  // Reason why the executor cannot run the graph; "" if it can.
  std::string obstacle;
};

/// Returns the layers of a graph if the graph is a plain sequence of nodes with
/// compiled kernels. Otherwise returns the obstacle.
[[nodiscard]] GraphLayers layers_in(const Graph& graph);

/// Returns the reason why a node has no compiled kernel, such as "its stride is 2, not
/// 1"; "" if it has a kernel.
[[nodiscard]] std::string node_obstacle(const Graph& graph, const Node& node);

}  // namespace tandem
