#pragma once

#include "tandem/graph/graph.h"

namespace tandem {

/// Replaces each node that returns one tensor and whose arguments are all constants by
/// its result, which becomes a constant. Examples are arange(64) and the operators on
/// its result. Keeps nodes that draw random numbers, and tensors that a node changes in
/// place.
[[nodiscard]] Graph with_constant_values(Graph graph);

}  // namespace tandem
