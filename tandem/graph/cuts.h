#pragma once

#include <string>
#include <vector>

#include "tandem/config/options/strategy_options.h"
#include "tandem/graph/graph.h"

namespace tandem {

/// Returns whether a node is a layer with parameters other than batch norm. Messages
/// name these layers, and `balance` begins stages with them.
[[nodiscard]] bool is_main_layer(const Graph& graph, const Node& node);

/// Division of a graph into stages.
struct Cut {
  // Names of the nodes, or paths of the modules, that begin the second and later
  // stages, in any order. Empty: `balance` determines the stages.
  std::vector<std::string> names;
  Balance balance = Balance::time;
};

/// Divides a graph into `stages` contiguous stages, which begin at `cut.names`, and
/// returns their nodes. If `cut.names` is empty, minimizes the cost of the most
/// expensive stage. If several divisions have the same cost, returns the division with
/// the longest first stages.
///
/// A stage can begin with a node under two conditions. First, a single tensor crosses
/// from earlier nodes to this node and later nodes. The tensor is floating-point, its
/// first dimension alone is the number of samples, and these nodes do not change it in
/// place. Second, no parameter or buffer is used on
/// both sides. If `cut.names` is empty, the node must also use a parameter and must not
/// be batch norm. So batch norm and activations stay with the node before them.
///
/// The cost of a stage is the sum of its nodes' costs. For Balance::time, the cost of a
/// node is cost_of(). For Balance::memory, it is the number of the node's parameters,
/// or 0 for batch norm.
///
/// Throws ConfigError if there are more stages than nodes that can begin a stage, or if
/// `cut` has a name with which no stage can begin. Also throws ConfigError if `cut`
/// does not make `stages` stages.
std::vector<NodeRange> split_graph(
    const Graph& graph, int64_t stages, const Cut& cut = {});

/// Returns a graph of the nodes in `range` only. Its input is the tensor that crosses
/// from earlier nodes, and its output is the tensor that crosses to later nodes. Throws
/// ConfigError if several tensors cross.
[[nodiscard]] Graph part_of(const Graph& graph, const NodeRange& range);

}  // namespace tandem
