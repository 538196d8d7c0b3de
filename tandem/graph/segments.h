#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// Returns the layers of a graph, which cover all nodes in order. A layer is a node
/// with parameters other than batch norm, and the nodes after it up to the next layer,
/// such as batch norm and ReLU. A layer does not begin where nodes change a value in
/// place that earlier nodes computed; its nodes then belong to the layer before it.
[[nodiscard]] std::vector<NodeRange> layer_ranges(const Graph& graph);

/// Returns the nodes in `wanted`, which are consecutive layers each, that can run a
/// second time in backward, as consecutive nodes. Leaves out nodes that read a buffer
/// or constant which the graph changes, and divides the layers there.
[[nodiscard]] std::vector<NodeRange> recomputable(
    const Graph& graph, const std::vector<NodeRange>& wanted);

/// Returns segments of `count` consecutive layers each. Without `with_last`, leaves out
/// the last segment, whose values backward needs first.
///
/// Throws ConfigError if no segment is left.
[[nodiscard]] std::vector<NodeRange> segments_of(
    const Graph& graph, int64_t count, bool with_last);

/// Returns the layers that one of the patterns matches by the name (layer_name()) of
/// their node with parameters. A pattern that matches no such name selects the layers
/// in which it matches another node. Neighboring layers of the same pattern are one
/// segment.
[[nodiscard]] std::vector<NodeRange> segments_matching(
    const Graph& graph, const std::vector<std::string>& patterns);

}  // namespace tandem
