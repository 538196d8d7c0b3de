#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/exec/recompute/kept_values.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/segments.h"

namespace tandem {

namespace {

// Largest number of segments into which the layers are divided.
constexpr size_t kMostSegments = 64;

struct Choice {
  std::vector<NodeRange> segments;
  double cost = std::numeric_limits<double>::infinity();
};

class Chooser {
 public:
  Chooser(const Graph& graph, const KeptValues& values, int64_t samples, int64_t limit)
      : graph_(graph),
        values_(values),
        samples_(samples),
        limit_(limit),
        layers_(layer_ranges(graph)) {
    if (try_segments({})) {
      return;
    }
    for (size_t count = 1; count <= std::min(kMostSegments, layers_.size()); ++count) {
      try_some_of(divided(count));
    }
  }

  const Choice& best() const {
    return best_;
  }
  // Lowest peak of all segments that were tried, in bytes.
  int64_t least() const {
    return least_;
  }

 private:
  // Divides the layers into segments whose values have nearly equal sizes.
  std::vector<NodeRange> divided(size_t count) const {
    std::vector<int64_t> saved;
    int64_t sum = 0;
    for (const auto& layer : layers_) {
      sum += 1 + saving(layer);
      saved.push_back(sum);
    }
    std::vector<NodeRange> segments;
    size_t last = count;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const auto part = static_cast<size_t>(
          static_cast<double>(saved[i] - 1) / static_cast<double>(sum) *
          static_cast<double>(count));
      if (part != std::exchange(last, part)) {
        segments.push_back(layers_[i]);
      }
      segments.back().end = layers_[i].end;
    }
    return recomputable(graph_, segments);
  }

  // Returns the size of the values that are not kept if only these nodes are
  // recomputed.
  int64_t saving(const NodeRange& nodes) const {
    return std::max<int64_t>(
        0,
        values_.after_forward({}, samples_) - values_.after_forward({nodes}, samples_));
  }

  // Tries to recompute the segments with the largest savings.
  void try_some_of(std::vector<NodeRange> segments) {
    std::vector<std::pair<int64_t, NodeRange>> order;
    for (const auto& segment : segments) {
      order.emplace_back(saving(segment), segment);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return a.first > b.first;
    });
    std::vector<NodeRange> some;
    for (const auto& [bytes, segment] : order) {
      some.push_back(segment);
      std::sort(some.begin(), some.end(), [](const auto& a, const auto& b) {
        return a.begin < b.begin;
      });
      if (try_segments(some)) {
        return;
      }
    }
  }

  // Returns whether the values fit.
  bool try_segments(const std::vector<NodeRange>& segments) {
    const int64_t peak = values_.peak(segments, samples_);
    least_ = std::min(least_, peak);
    if (peak > limit_) {
      return false;
    }
    double cost = 0;
    for (const auto& segment : segments) {
      for (size_t i = segment.begin; i < segment.end; ++i) {
        cost += cost_of(graph_, graph_.nodes[i]);
      }
    }
    if (cost < best_.cost) {
      best_ = {segments, cost};
    }
    return true;
  }

  const Graph& graph_;
  const KeptValues& values_;
  int64_t samples_;
  int64_t limit_;
  std::vector<NodeRange> layers_;
  Choice best_;
  int64_t least_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

std::vector<NodeRange> choose_segments(
    const Graph& graph, const KeptValues& values, int64_t samples, int64_t limit) {
  const Chooser chooser(graph, values, samples, limit);
  if (chooser.least() > limit) {
    throw ConfigError(fmt::format(
        "[exec] memory is {:.3g}M, expected {} or more for the kept values of {} "
        "samples; "
        "raise --memory, or lower --batch-size",
        static_cast<double>(limit) / (1 << 20), memory_text(chooser.least()), samples));
  }
  return chooser.best().segments;
}

std::string memory_text(int64_t bytes) {
  constexpr double kTenth = (1 << 20) / 10.0;
  // Rounds up, so that the text is enough as a limit.
  return fmt::format("{:.1f}M", std::ceil(static_cast<double>(bytes) / kTenth) / 10);
}

}  // namespace tandem
