#include "tandem/train/recomputation.h"

#include <fmt/core.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/config/recompute_choice.h"
#include "tandem/exec/recompute/kept_values.h"
#include "tandem/graph/segments.h"

namespace tandem {

namespace {

// Backward of a stage that is not the last begins after other micro-batches have run
// forward, so the last segment keeps values, too.
std::vector<NodeRange> selected(
    const RecomputeChoice& choice, const Graph& graph, const KeptValues& values,
    int64_t samples, bool with_last) {
  if (choice.memory > 0) {
    return choose_segments(graph, values, samples, choice.memory);
  }
  return recomputable(
      graph, choice.every > 0 ? segments_of(graph, choice.every, with_last)
                              : segments_matching(graph, choice.patterns));
}

size_t count_layers(const Graph& graph, const std::vector<NodeRange>& segments) {
  size_t count = 0;
  for (const auto& layer : layer_ranges(graph)) {
    for (const auto& segment : segments) {
      count += layer.begin < segment.end && segment.begin < layer.end ? 1 : 0;
    }
  }
  return count;
}

}  // namespace

void check_recompute(const ExecOptions& options, const Model& model) {
  const RecomputeChoice choice = recompute_choice(options);
  if (choice.is_none()) {
    return;
  }
  if (model.graph() == nullptr) {
    throw ConfigError(fmt::format(
        "[exec] recompute is '{}', but the model is only a function, expected one with "
        "layers; leave out --recompute, or choose a network of torch.export (--model)",
        options.recompute));
  }
  std::vector<std::string> names;
  for (const auto& node : model.graph()->nodes) {
    names.push_back(layer_name(node));
  }
  check_patterns_match("recompute", choice.patterns, names, "layer");
}

std::string recompute_values(
    const ExecOptions& options, int64_t samples, Model& model, StageOptions& stage) {
  const RecomputeChoice choice = recompute_choice(options);
  if (choice.is_none()) {
    return "";
  }
  const Graph& graph = *model.graph();
  const KeptValues values(graph, stage.wants_input_gradient());
  const auto segments =
      selected(choice, graph, values, samples, /*with_last=*/!stage.last);
  model.recompute(segments);
  stage.recomputes = !segments.empty();
  return fmt::format(
      "[exec] recompute: {} of {} in {}, so a batch of {} keeps at most {} for "
      "backward instead of {}",
      count_layers(graph, segments),
      counted(static_cast<int64_t>(layer_ranges(graph).size()), "layer"),
      counted(static_cast<int64_t>(segments.size()), "segment"), samples,
      memory_text(values.peak(segments, samples)),
      memory_text(values.peak({}, samples)));
}

}  // namespace tandem
