#include "tandem/graph/segments.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/config/name_patterns.h"
#include "tandem/graph/cuts.h"
#include "tandem/graph/effects.h"

namespace tandem {

namespace {

// Nodes that compute or view a value which one of them changes in place.
std::vector<NodeRange> in_place_spans(const Graph& graph, const Effects& effects) {
  std::vector<NodeRange> of_root(graph.values.size(), {graph.nodes.size(), 0});
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id >= 0) {
        auto& span = of_root[static_cast<size_t>(effects.root(id))];
        span.begin = std::min(span.begin, i);
      }
    }
    if (const ValueId id = effects.changed(graph.nodes[i]); id >= 0) {
      of_root[static_cast<size_t>(id)].end = i + 1;
    }
  }
  std::vector<NodeRange> spans;
  for (size_t i = 0; i < of_root.size(); ++i) {
    if (graph.values[i].kind == ValueKind::output && of_root[i].end > 0) {
      spans.push_back(of_root[i]);
    }
  }
  return spans;
}

// Returns, for each node, whether a segment can begin with it.
std::vector<bool> free_positions(const Graph& graph, const Effects& effects) {
  std::vector<bool> is_free(graph.nodes.size(), true);
  for (const auto& span : in_place_spans(graph, effects)) {
    for (size_t i = span.begin + 1; i < span.end; ++i) {
      is_free[i] = false;
    }
  }
  return is_free;
}

// Returns, for each node, whether it must not run a second time: it reads state that
// may then have changed.
std::vector<bool> nodes_for_once(const Graph& graph, const Effects& effects) {
  std::vector<bool> once(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for_each_value(node, [&](ValueId id) {
      const bool is_state = graph.value(effects.root(id)).kind != ValueKind::output;
      once[i] = once[i] ||
                (is_state && effects.is_changed(id) && !effects.changes_state(node));
    });
  }
  for (const auto& span : in_place_spans(graph, effects)) {
    const auto begin = once.begin() + static_cast<std::ptrdiff_t>(span.begin);
    const auto end = once.begin() + static_cast<std::ptrdiff_t>(span.end);
    if (std::find(begin, end, true) != end) {
      std::fill(begin, end, true);
    }
  }
  return once;
}

// Finds the layers that patterns match.
class Matcher {
 public:
  Matcher(const Graph& graph, const NamePatterns& patterns) : graph_(graph) {
    for (const auto& pattern : patterns) {
      const bool names_layer =
          std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
            return is_main_layer(graph, node) &&
                   matches_any({pattern}, layer_name(node));
          });
      patterns_.emplace_back(NamePatterns{pattern}, names_layer);
    }
  }

  // Returns the index of the first pattern that matches a layer; -1 if none does.
  int64_t find(const NodeRange& layer) const {
    for (size_t i = 0; i < patterns_.size(); ++i) {
      const auto& [pattern, names_layer] = patterns_[i];
      for (size_t j = layer.begin; j < layer.end; ++j) {
        const Node& node = graph_.nodes[j];
        if (matches_any(pattern, layer_name(node)) &&
            (!names_layer || is_main_layer(graph_, node))) {
          return static_cast<int64_t>(i);
        }
      }
    }
    return -1;
  }

 private:
  const Graph& graph_;
  // Each pattern, and whether it matches the name of a node with parameters.
  std::vector<std::pair<NamePatterns, bool>> patterns_;
};

}  // namespace

std::vector<NodeRange> layer_ranges(const Graph& graph) {
  const Effects effects(graph);
  const auto is_free = free_positions(graph, effects);
  std::vector<NodeRange> layers;
  bool has_layer = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const bool begins = is_main_layer(graph, graph.nodes[i]) && is_free[i];
    if (layers.empty() || (begins && has_layer)) {
      layers.push_back({i, i});
    }
    has_layer = has_layer || begins;
    layers.back().end = i + 1;
  }
  return layers;
}

std::vector<NodeRange> recomputable(
    const Graph& graph, const std::vector<NodeRange>& wanted) {
  const auto once = nodes_for_once(graph, Effects(graph));
  std::vector<NodeRange> segments;
  for (const auto& nodes : wanted) {
    bool continues = false;
    for (size_t i = nodes.begin; i < nodes.end; ++i) {
      if (!once[i] && !continues) {
        segments.push_back({i, i});
      }
      continues = !once[i];
      if (continues) {
        segments.back().end = i + 1;
      }
    }
  }
  return segments;
}

std::vector<NodeRange> segments_of(const Graph& graph, int64_t count, bool with_last) {
  const auto layers = layer_ranges(graph);
  const auto each = static_cast<size_t>(count);
  std::vector<NodeRange> segments;
  for (size_t i = 0; i < layers.size(); i += each) {
    segments.push_back(
        {layers[i].begin, layers[std::min(i + each, layers.size()) - 1].end});
  }
  if (!with_last && !segments.empty()) {
    segments.pop_back();
  }
  if (segments.empty()) {
    throw ConfigError(fmt::format(
        "[exec] recompute is every:{}, expected less than the {} layers of the "
        "network; "
        "change --recompute",
        count, layers.size()));
  }
  return segments;
}

std::vector<NodeRange> segments_matching(
    const Graph& graph, const std::vector<std::string>& patterns) {
  const Matcher matcher(graph, patterns);
  std::vector<NodeRange> segments;
  int64_t last = -1;
  for (const auto& layer : layer_ranges(graph)) {
    const int64_t found = matcher.find(layer);
    if (found >= 0 && found == last) {
      segments.back().end = layer.end;
    } else if (found >= 0) {
      segments.push_back(layer);
    }
    last = found;
  }
  return segments;
}

}  // namespace tandem
