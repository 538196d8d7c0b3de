#pragma once

#include <cstdint>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/graph/graph.h"

namespace tandem {

/// Returns the fixed sizes of a shape [N, ...].
inline std::vector<int64_t> sizes_of(const std::vector<Size>& shape) {
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < shape.size(); ++i) {
    sizes.push_back(shape[i].fixed);
  }
  return sizes;
}

/// Returns `size` images of random pixels, with labels. `image` is {channels, height,
/// width}.
inline Dataset noise(const std::vector<int64_t>& image, int64_t classes, int64_t size) {
  Dataset dataset;
  dataset.size = size;
  dataset.inputs.shape = {image[0], image[1], image[2]};
  dataset.num_classes = classes;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  uint32_t state = 4711;
  for (int64_t i = 0; i < size * image[0] * image[1] * image[2]; ++i) {
    state = state * 1664525 + 1013904223;
    pixels.push_back(static_cast<uint8_t>(state >> 24));
  }
  for (int64_t i = 0; i < size; ++i) {
    labels.push_back(static_cast<uint8_t>(i * 7 % classes));
  }
  dataset.inputs.bytes = pixels;
  dataset.targets.bytes = labels;
  return dataset;
}

/// Returns images of noise with the network's input shape and number of classes.
inline Dataset noise_for(const Graph& graph, int64_t size) {
  return noise(
      sizes_of(graph.value(graph.input).shape),
      sizes_of(graph.value(graph.output).shape)[0], size);
}

}  // namespace tandem
