#pragma once

#include <cstdint>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// Preparation of raw samples: a number x becomes (x / unit - mean) / std.
struct InputNormalization {
  // 255 for pixels, otherwise 1.
  double unit = 1;
  // One number, or one number for each element of the first size of a sample's shape.
  std::vector<double> mean;
  std::vector<double> std;
  // Number of black pixels added on each side of an image before the normalization.
  int64_t pad = 0;
};

/// Returns a graph that normalizes its input before the network reads it, so its input
/// is raw samples as numbers of the input's dtype. The input keeps its name; its shape
/// is without the padding. The input must not be indices.
[[nodiscard]] Graph with_normalized_input(
    Graph graph, const InputNormalization& normalization);

/// Returns a graph whose output y becomes y * std + mean, which are the units of
/// targets before their normalization. `mean` and `std` have one number, or one number
/// for each element of the first size of a sample's output.
[[nodiscard]] Graph with_restored_output(
    Graph graph, const std::vector<double>& mean, const std::vector<double>& std);

}  // namespace tandem
