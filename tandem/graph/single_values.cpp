#include "tandem/graph/single_values.h"

#include "tandem/base/error.h"
#include "tandem/graph/operators.h"

namespace tandem {

namespace {

// Frozen batch norm uses no statistics of the batch.
bool is_frozen(const Node& node) {
  const auto& training = node.arguments[5].constant;
  return training.isBool() && !training.toBool() && !node.arguments[3].is_none();
}

}  // namespace

const Node* find_single_value_norm(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (!operator_row(node.target).has(kIsBatchNorm) ||
        node.arguments[0].kind != Argument::Kind::value || is_frozen(node)) {
      continue;
    }
    const auto sizes = sizes_at(graph.value(node.arguments[0].value).shape, 1);
    int64_t values = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      values *= i == 1 ? 1 : sizes[i];
    }
    if (values == 1) {
      return &node;
    }
  }
  return nullptr;
}

void check_values_per_channel(int64_t values, const std::string& name) {
  if (values == 1) {
    throw ConfigError(
        "[model] batch norm " + name +
        " has 1 value per channel in a training batch, expected 2 or more; change "
        "--batch-size so that each batch has 2 or more samples");
  }
}

}  // namespace tandem
