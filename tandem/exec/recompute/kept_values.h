#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// The values of a graph that training keeps for backward: the input and outputs of
/// nodes, as StageExecutor::kept_bytes() of the eager executor counts them.
class KeptValues {
 public:
  /// Runs a forward pass of a few samples on the CPU, without an effect on buffers.
  /// `graph` must outlive the object. `input_gradient` is that of
  /// StageOptions::wants_input_gradient().
  KeptValues(const Graph& graph, bool input_gradient);

  /// Returns the size of the values that exist after a forward pass of `samples`
  /// samples, in bytes, if backward recomputes `segments` (recomputable()).
  int64_t after_forward(const std::vector<NodeRange>& segments, int64_t samples) const;

  /// Returns the largest size of these values at any time, with those of a segment
  /// while backward recomputes it, but without gradients.
  int64_t peak(const std::vector<NodeRange>& segments, int64_t samples) const;

 private:
  // Memory of one or several values.
  struct Memory {
    // The first value, and the node that computes it; -1 for the input.
    ValueId value = 0;
    int64_t node = -1;
    // True if training keeps it when no segment is recomputed.
    bool is_kept = false;
  };

  void find_memories(bool input_gradient);
  int64_t bytes(size_t memory, int64_t samples) const;
  // Returns, for each memory, whether it exists after forward.
  std::vector<bool> kept(const std::vector<NodeRange>& segments) const;

  const Graph& graph_;
  std::vector<Memory> memories_;
  // Indices of the memories of values; -1 if the forward pass did not show it.
  std::vector<int64_t> memory_of_;
};

/// Returns segments with which KeptValues::peak() is at most `limit` bytes, for which
/// backward computes as little as possible a second time.
///
/// Throws ConfigError with the lowest possible limit if it is larger.
[[nodiscard]] std::vector<NodeRange> choose_segments(
    const Graph& graph, const KeptValues& values, int64_t samples, int64_t limit);

/// Returns a size in bytes as text, in mebibytes, rounded up: "12.5M".
[[nodiscard]] std::string memory_text(int64_t bytes);

}  // namespace tandem
