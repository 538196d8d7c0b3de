#pragma once

#include <cstdint>
#include <string>

#include "tandem/graph/graph.h"

namespace tandem {

/// Returns the first batch norm of a graph that has only one value per channel in a
/// batch of one sample, such as a batch norm of vectors; null if there is none.
[[nodiscard]] const Node* find_single_value_norm(const Graph& graph);

/// Throws ConfigError if batch norm has a single value per channel in training, as
/// torch.nn.functional.batch_norm does: the value would become 0, and the running
/// variance NaN. `name` is the name of the node or the layer.
void check_values_per_channel(int64_t values, const std::string& name);

}  // namespace tandem
