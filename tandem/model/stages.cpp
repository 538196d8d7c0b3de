#include "tandem/model/stages.h"

#include <fmt/core.h>

#include <set>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

// Returns the main layers. If there are more than four, returns the first and the last.
std::string modules_of(const Graph& graph, const NodeRange& range) {
  std::vector<std::string> names;
  for (size_t i = range.begin; i < range.end; ++i) {
    const Node& node = graph.nodes[i];
    if (is_main_layer(graph, node)) {
      names.push_back(layer_name(node));
    }
  }
  return names.size() > 4 ? names.front() + " ... " + names.back() : join(names, " ");
}

// Returns for instance "conv2 fc1, 1199242 parameters (4796968 bytes)".
std::string describe_stage(const Graph& graph, const NodeRange& range) {
  int64_t count = 0;
  int64_t bytes = 0;
  std::set<const at::TensorImpl*> seen;
  for (const auto& parameter : parameters_of(part_of(graph, range))) {
    if (seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) {
      count += parameter.tensor.numel();
      bytes += static_cast<int64_t>(parameter.tensor.nbytes());
    }
  }
  return fmt::format(
      "{}, {} ({} bytes)", modules_of(graph, range), counted(count, "parameter"),
      bytes);
}

}  // namespace

std::string keep_stage(Model& model, int64_t stages, int64_t stage, const Cut& cut) {
  if (stages == 1 && cut.names.empty()) {
    return "the whole model";
  }
  if (model.graph() == nullptr) {
    throw ConfigError(
        "[model] the model is only a function, but a pipeline needs its layers; choose "
        "one of tandem's models or a file of torch.export (--model), or --strategy "
        "data_parallel");
  }
  const auto ranges = split_graph(*model.graph(), stages, cut);
  std::vector<std::string> described;
  for (const auto& range : ranges) {
    described.push_back(describe_stage(*model.graph(), range));
  }
  model.keep_nodes(ranges[static_cast<size_t>(stage)]);
  return join(described, " | ");
}

}  // namespace tandem
