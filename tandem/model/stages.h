#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/config/options/strategy_options.h"
#include "tandem/model/model.h"

namespace tandem {

/// Layers [begin, end) of a model.
struct LayerRange {
  size_t begin = 0;
  size_t end = 0;
};

/// Division of a model into stages.
struct Cut {
  // Names of the layers that begin a stage, in any order, without the first stage's.
  // Empty: `balance` decides.
  std::vector<std::string> layers;
  Balance balance = Balance::time;
};

/// Divides layers into contiguous stages at `cut.layers`, or so that the most expensive
/// stage costs as little as possible. Among several such divisions, returns
/// the one with the longest first stages.
///
/// A stage begins with a convolution or a linear layer, so that batch norm and
/// activations in place stay with their layer. The first stage also includes the layers
/// before that. The cost in time is the number of multiplications of these layers, plus
/// ten for each value that a layer writes. The cost in memory is their number of
/// parameters. A pure function.
///
/// Throws ConfigError if there are more stages than convolutions and linear layers, if
/// `cut` names another layer, or if it makes another number of stages.
std::vector<LayerRange> split_layers(
    const std::vector<Layer>& layers, const InputShape& input, int64_t stages,
    const Cut& cut = {});

/// Returns the number of values that the layers output for one sample.
int64_t num_outputs(const std::vector<Layer>& layers, const InputShape& input);

/// Removes all layers from `model` except those of stage `stage` of `stages`
/// (Model::keep_layers). With one stage and no cut it changes nothing, and accepts any
/// model.
///
/// Returns all stages as text: "conv1, 320 parameters (1280 bytes) | conv2 fc1, ...".
/// Throws ConfigError for a model without layers(), and as split_layers().
std::string keep_stage(
    Model& model, const InputShape& input, int64_t stages, int64_t stage,
    const Cut& cut = {});

}  // namespace tandem
