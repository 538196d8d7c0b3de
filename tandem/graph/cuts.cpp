#include "tandem/graph/cuts.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/graph/effects.h"
#include "tandem/graph/operators.h"

namespace tandem {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A main layer to which a single tensor crosses, and the nodes up to the next one.
struct Unit {
  NodeRange nodes;
  double cost = 0;
};

bool is_state(const Value& value) {
  return value.kind == ValueKind::parameter || value.kind == ValueKind::buffer;
}

// Returns whether a shape is [N, ...]. Stages exchange such tensors only: the heads of
// attention, [N * heads, ...], would not match the batch of the next stage.
bool has_samples_first(const std::vector<Size>& shape) {
  return !shape.empty() && shape[0] == Size{0, 1} &&
         std::all_of(shape.begin() + 1, shape.end(), [](const Size& size) {
           return size.per_sample == 0;
         });
}

// Uses of each value, as indices of nodes.
class Uses {
 public:
  explicit Uses(const Graph& graph) : graph_(graph), uses_(graph.values.size()) {
    const Effects effects(graph);
    const auto count = static_cast<int64_t>(graph.nodes.size());
    for (int64_t i = 0; i < count; ++i) {
      const Node& node = graph.nodes[static_cast<size_t>(i)];
      for_each_value(node, [&](ValueId id) {
        Use& use = uses_[static_cast<size_t>(id)];
        use.first = std::min(use.first, i);
        use.last = i;
      });
      for (const ValueId id : node.outputs) {
        if (id >= 0) {
          uses_[static_cast<size_t>(id)].computed = i;
        }
      }
      if (const ValueId id = effects.changed(node); id >= 0) {
        uses_[static_cast<size_t>(id)].written = i;
      }
    }
    for (size_t i = 0; i < uses_.size(); ++i) {
      const auto root = static_cast<size_t>(effects.root(static_cast<ValueId>(i)));
      uses_[i].written = uses_[root].written;
      if (is_state(graph.values[root])) {
        uses_[root].first = std::min(uses_[root].first, uses_[i].first);
        uses_[root].last = std::max(uses_[root].last, uses_[i].last);
      }
    }
    uses_[static_cast<size_t>(graph.output)].last = count;
  }

  // Returns the tensor that crosses from the nodes before `position` to the others, if
  // it is the only one, and if a stage can begin there.
  std::optional<ValueId> crossing(size_t position) const {
    const auto at = static_cast<int64_t>(position);
    std::optional<ValueId> found;
    for (size_t i = 0; i < uses_.size(); ++i) {
      const Use& use = uses_[i];
      const Value& value = graph_.values[i];
      const bool is_computed =
          value.kind == ValueKind::output || value.kind == ValueKind::input;
      if (is_state(value) && use.first < at && use.last >= at) {
        return std::nullopt;
      }
      if (!is_computed || use.computed >= at || use.last < at) {
        continue;
      }
      // A stage receives a leaf of autograd, which must not change in place.
      if (found || use.written >= at || !at::isFloatingType(value.dtype) ||
          !has_samples_first(value.shape)) {
        return std::nullopt;
      }
      found = static_cast<ValueId>(i);
    }
    return found;
  }

 private:
  struct Use {
    // Node that computes the value; -1 for the input of the graph.
    int64_t computed = -1;
    int64_t first = std::numeric_limits<int64_t>::max();
    int64_t last = -1;
    // Last node that changes the value in place; -1: none.
    int64_t written = -1;
  };

  const Graph& graph_;
  std::vector<Use> uses_;
};

std::vector<Unit> units_of(const Graph& graph, const Uses& uses, Balance balance) {
  std::vector<Unit> units;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool begins = is_main_layer(graph, node);
    if (begins && (units.empty() || uses.crossing(i))) {
      units.push_back({{units.empty() ? 0 : i, i}, 0});
    }
    if (!units.empty()) {
      units.back().nodes.end = i + 1;
      units.back().cost += balance == Balance::time ? cost_of(graph, node)
                           : begins ? static_cast<double>(count_parameters(graph, node))
                                    : 0;
    }
  }
  return units;
}

std::string names_of(const Graph& graph, const std::vector<Unit>& units) {
  std::vector<std::string> names;
  for (const auto& unit : units) {
    for (size_t i = unit.nodes.begin; i < unit.nodes.end; ++i) {
      if (is_main_layer(graph, graph.nodes[i])) {
        names.push_back(layer_name(graph.nodes[i]));
        break;
      }
    }
  }
  return join(names, " ");
}

// Returns the first node of this name, or in the module of this path.
std::optional<size_t> find_node(const Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.name == name || node.module == name ||
        node.module.rfind(name + ".", 0) == 0) {
      return i;
    }
  }
  return std::nullopt;
}

std::vector<NodeRange> cut_at(
    const Graph& graph, const Uses& uses, const std::vector<Unit>& units,
    int64_t stages, const Cut& cut) {
  const std::string flag = "[model] --cut " + join(cut.names, ",");
  size_t first_unit = 0;
  while (first_unit < graph.nodes.size() &&
         !is_main_layer(graph, graph.nodes[first_unit])) {
    ++first_unit;
  }
  std::vector<size_t> begins;
  for (const auto& name : cut.names) {
    const auto node = find_node(graph, name);
    const bool first = node && *node <= first_unit;
    if (!node || (!first && !uses.crossing(*node))) {
      const size_t skipped = std::min<size_t>(units.size(), 1);
      const auto names = split(
          names_of(
              graph,
              {units.begin() + static_cast<std::ptrdiff_t>(skipped), units.end()}),
          ' ');
      throw ConfigError(
          flag + ": no stage can begin with '" + name + "'" +
          did_you_mean(name, names) + "; choose among " + join(names));
    }
    begins.push_back(first ? 0 : *node);
  }
  std::sort(begins.begin(), begins.end());
  const bool twice = std::adjacent_find(begins.begin(), begins.end()) != begins.end();
  if (twice || (!begins.empty() && begins.front() == 0)) {
    throw ConfigError(
        flag +
        " leaves a stage without layers; name each layer once, and not the "
        "first, " +
        names_of(graph, {units.front()}));
  }
  if (static_cast<int64_t>(begins.size()) + 1 != stages) {
    throw ConfigError(fmt::format(
        "{} makes {} stages, but there are {}; change --cut, or --stages and --nproc",
        flag, begins.size() + 1, stages));
  }
  std::vector<NodeRange> ranges = {{0, graph.nodes.size()}};
  for (const size_t begin : begins) {
    ranges.back().end = begin;
    ranges.push_back({begin, graph.nodes.size()});
  }
  return ranges;
}

std::vector<NodeRange> balanced(const std::vector<Unit>& units, size_t stages) {
  const size_t count = units.size();
  // best[s][u] is the cost of the most expensive stage if the units from u onwards are
  // divided into s + 1 stages. next[s][u] is the end of the first of these stages.
  std::vector<std::vector<double>> best(stages, std::vector<double>(count, kInfinity));
  std::vector<std::vector<size_t>> next(stages, std::vector<size_t>(count, count));
  for (size_t s = 0; s < stages; ++s) {
    for (size_t u = 0; u + s < count; ++u) {
      double cost = 0;
      for (size_t end = u + 1; end + s <= count; ++end) {
        cost += units[end - 1].cost;
        if (s == 0 && end < count) {
          continue;
        }
        const double worst = s == 0 ? cost : std::max(cost, best[s - 1][end]);
        if (worst <= best[s][u]) {
          best[s][u] = worst;
          next[s][u] = end;
        }
      }
    }
  }
  std::vector<NodeRange> ranges;
  size_t unit = 0;
  for (size_t s = stages; s-- > 0;) {
    const size_t end = next[s][unit];
    ranges.push_back({units[unit].nodes.begin, units[end - 1].nodes.end});
    unit = end;
  }
  return ranges;
}

}  // namespace

bool is_main_layer(const Graph& graph, const Node& node) {
  return has_parameters(graph, node) && !operator_row(node.target).has(kIsBatchNorm);
}

std::vector<NodeRange> split_graph(const Graph& graph, int64_t stages, const Cut& cut) {
  const Uses uses(graph);
  const auto units = units_of(graph, uses, cut.balance);
  if (!cut.names.empty()) {
    return cut_at(graph, uses, units, stages, cut);
  }
  if (units.empty()) {
    throw ConfigError(fmt::format(
        "[model] {} stages need as many layers at which a single tensor crosses, but "
        "the model has none; choose --strategy data_parallel",
        stages));
  }
  if (stages < 1 || static_cast<size_t>(stages) > units.size()) {
    throw ConfigError(fmt::format(
        "[model] {} stages need as many layers at which a single tensor crosses, but "
        "the model has {} ({}); lower --stages or --nproc",
        stages, units.size(), names_of(graph, units)));
  }
  return balanced(units, static_cast<size_t>(stages));
}

Graph part_of(const Graph& graph, const NodeRange& range) {
  TANDEM_CHECK(
      range.begin < range.end && range.end <= graph.nodes.size(), "no such nodes");
  const Uses uses(graph);
  const auto crossing = [&](size_t position) {
    const auto value = uses.crossing(position);
    if (!value) {
      throw ConfigError(
          "[model] no stage can begin with " +
          name_for_messages(graph.nodes[position]) +
          ", because several tensors cross to it; change --cut");
    }
    return *value;
  };
  Graph part = graph;
  part.nodes = {
      graph.nodes.begin() + static_cast<std::ptrdiff_t>(range.begin),
      graph.nodes.begin() + static_cast<std::ptrdiff_t>(range.end)};
  if (range.begin > 0) {
    part.input = crossing(range.begin);
    part.values[static_cast<size_t>(part.input)].kind = ValueKind::input;
  }
  if (range.end < graph.nodes.size()) {
    part.output = crossing(range.end);
  }
  // Other ranks have the parameters of the other stages. The first stage also has the
  // parameters that no node uses.
  std::set<ValueId> used;
  std::set<ValueId> elsewhere;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const bool inside = i >= range.begin && i < range.end;
    for_each_value(graph.nodes[i], [&](ValueId id) {
      inside ? void(used.insert(id)) : void(elsewhere.insert(id));
    });
  }
  for (size_t i = 0; i < part.values.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (used.count(id) == 0 && (range.begin > 0 || elsewhere.count(id) > 0)) {
      part.values[i].tensor.reset();
    }
  }
  return part;
}

}  // namespace tandem
