#include "tandem/exec/recompute/kept_values.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tandem/exec/program/saved_state.h"
#include "tandem/graph/effects.h"
#include "tandem/graph/interpreter.h"

namespace tandem {

namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Saves the tensors that a forward pass changes.
void save_state(const Graph& graph, SavedState& saved) {
  const Effects effects(graph);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    const bool is_changed = value.kind == ValueKind::buffer ||
                            (value.kind == ValueKind::parameter &&
                             effects.is_changed(static_cast<ValueId>(i)));
    if (is_changed && value.tensor.defined()) {
      saved.save(value.tensor);
    }
  }
}

bool contains(const NodeRange& nodes, int64_t node) {
  return node >= static_cast<int64_t>(nodes.begin) &&
         node < static_cast<int64_t>(nodes.end);
}

// Calls body(value) for each value of earlier nodes that the nodes read.
template <typename Body>
void for_each_input(const Graph& graph, const NodeRange& nodes, const Body& body) {
  std::vector<bool> inside(graph.values.size());
  for (size_t i = nodes.begin; i < nodes.end; ++i) {
    for_each_value(graph.nodes[i], [&](ValueId id) {
      const ValueKind kind = graph.value(id).kind;
      if ((kind == ValueKind::output || kind == ValueKind::input) &&
          !inside[static_cast<size_t>(id)]) {
        body(id);
      }
    });
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id >= 0) {
        inside[static_cast<size_t>(id)] = true;
      }
    }
  }
}

}  // namespace

KeptValues::KeptValues(const Graph& graph, bool input_gradient)
    : graph_(graph), memory_of_(graph.values.size(), -1) {
  find_memories(input_gradient);
}

void KeptValues::find_memories(bool input_gradient) {
  SavedState saved(/*draws=*/false);
  save_state(graph_, saved);
  // Views of parameters and buffers need no memory.
  std::set<const c10::StorageImpl*> is_state;
  for (const auto& value : graph_.values) {
    if (value.tensor.defined()) {
      is_state.insert(value.tensor.storage().unsafeGetStorageImpl());
    }
  }
  std::map<const c10::StorageImpl*, size_t> known;
  std::vector<WeakStorage> storages;
  int64_t node = -1;
  const auto see = [&](ValueId id, const at::Tensor& tensor) {
    const auto* const storage = tensor.storage().unsafeGetStorageImpl();
    if (is_state.count(storage) > 0) {
      return;
    }
    const auto [found, is_new] = known.emplace(storage, storages.size());
    if (is_new) {
      // A weak pointer, so that no later storage gets the address.
      storages.push_back(tensor.storage().getWeakStorageImpl());
      memories_.push_back({id, node, false});
    }
    memory_of_[static_cast<size_t>(id)] = static_cast<int64_t>(found->second);
  };
  // Batch norm needs two samples.
  const int64_t samples = std::clamp<int64_t>(
      2, graph_.min_samples, std::max(graph_.min_samples, graph_.max_samples));
  const Value& value = graph_.value(graph_.input);
  auto input = at::zeros(sizes_at(value.shape, samples), value.dtype)
                   .set_requires_grad(input_gradient);
  see(graph_.input, input);
  ForwardContext context;
  context.after_node = [&](const Node& seen, const at::Tensor& output) {
    node = &seen - graph_.nodes.data();
    see(seen.outputs[0], output);
  };
  const c10::AutoGradMode grad(true);
  const auto output = Interpreter(graph_, {}).run(input, context);
  for (size_t i = 0; i < storages.size(); ++i) {
    memories_[i].is_kept = !storages[i].expired();
  }
}

int64_t KeptValues::bytes(size_t memory, int64_t samples) const {
  const Value& value = graph_.value(memories_[memory].value);
  return c10::multiply_integers(sizes_at(value.shape, samples)) *
         static_cast<int64_t>(c10::elementSize(value.dtype));
}

std::vector<bool> KeptValues::kept(const std::vector<NodeRange>& segments) const {
  std::vector<bool> kept;
  for (const auto& memory : memories_) {
    kept.push_back(memory.is_kept);
  }
  // Forgets the values of segments, except those that later nodes read.
  for (const auto& segment : segments) {
    for (size_t i = 0; i < memories_.size(); ++i) {
      kept[i] = kept[i] && !contains(segment, memories_[i].node);
    }
  }
  const auto keep = [&](ValueId id, bool even_if_forgotten) {
    const int64_t memory = memory_of_[static_cast<size_t>(id)];
    if (memory >= 0) {
      const auto i = static_cast<size_t>(memory);
      kept[i] = kept[i] || even_if_forgotten || memories_[i].is_kept;
    }
  };
  size_t next = 0;
  for (const auto& segment : segments) {
    for_each_input(graph_, {next, segment.begin}, [&](ValueId id) { keep(id, false); });
    for_each_input(graph_, segment, [&](ValueId id) { keep(id, true); });
    next = segment.end;
  }
  for_each_input(
      graph_, {next, graph_.nodes.size()}, [&](ValueId id) { keep(id, false); });
  keep(graph_.output, true);
  return kept;
}

int64_t KeptValues::after_forward(
    const std::vector<NodeRange>& segments, int64_t samples) const {
  const auto exists = kept(segments);
  int64_t sum = 0;
  for (size_t i = 0; i < memories_.size(); ++i) {
    sum += exists[i] ? bytes(i, samples) : 0;
  }
  return sum;
}

int64_t KeptValues::peak(
    const std::vector<NodeRange>& segments, int64_t samples) const {
  const auto exists = kept(segments);
  int64_t most = after_forward(segments, samples);
  for (const auto& segment : segments) {
    int64_t sum = 0;
    for (size_t i = 0; i < memories_.size(); ++i) {
      // Backward has freed the values of later nodes.
      const bool is_here = memories_[i].node < static_cast<int64_t>(segment.end);
      const bool again = memories_[i].is_kept && contains(segment, memories_[i].node);
      sum += is_here && (exists[i] || again) ? bytes(i, samples) : 0;
    }
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace tandem
