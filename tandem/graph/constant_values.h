#pragma once

#include "tandem/graph/graph.h"

namespace tandem {

/// Returns the graph without the nodes whose arguments are all constants, such as
/// arange(64) and the operators on its result. Their results become constants. Nodes
/// that draw random numbers, and tensors that a node changes in place, stay.
[[nodiscard]] Graph with_constant_values(Graph graph);

}  // namespace tandem
