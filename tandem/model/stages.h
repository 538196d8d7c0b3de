#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/model/model.h"

namespace tandem {

/// Layers [begin, end) of a model.
struct LayerRange {
  size_t begin = 0;
  size_t end = 0;
};

/// Divides layers into contiguous stages such that the most expensive one costs as
/// little as possible; of several such ways, the one whose first stages are longest.
///
/// A stage begins with a convolution or a linear layer (the first stage includes what
/// comes before that), so that what follows such a layer stays with it: batch norm, an
/// activation in place. Cost is the multiplications of those layers, and ten for each
/// value that a layer writes. A pure function.
///
/// Throws ConfigError when there are more stages than convolutions and linear layers.
std::vector<LayerRange> split_layers(
    const std::vector<Layer>& layers, const InputShape& input, int64_t stages);

/// Leaves only stage `stage` of `stages` in `model` (Model::keep_layers). With one
/// stage any model stays as it is.
///
/// Returns all stages as text: "conv1 | conv2 fc1". Throws ConfigError for a model
/// without layers(), and as split_layers().
std::string keep_stage(
    Model& model, const InputShape& input, int64_t stages, int64_t stage);

}  // namespace tandem
