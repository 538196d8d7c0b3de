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
  // Names of the layers that begin the second and later stages, in any order. Empty:
  // `balance` determines the stages.
  std::vector<std::string> layers;
  Balance balance = Balance::time;
};

/// Divides layers into contiguous stages at `cut.layers`. If `cut.layers` is empty,
/// minimizes the cost of the most expensive stage. Among several such divisions,
/// returns the division with the longest first stages.
///
/// A stage begins with a convolution or a linear layer, so that batch norm and in-place
/// activations stay with the layer before them. The first stage also includes layers
/// before its first convolution or linear layer.
///
/// For Balance::time, the cost is the number of multiplications in convolutions and
/// linear layers, plus ten for each value that a layer writes. Otherwise, the cost is
/// the number of parameters in convolutions and linear layers.
///
/// Throws ConfigError if there are more stages than convolutions and linear layers, if
/// no stage can begin with a layer in `cut`, or if `cut` does not make `stages` stages.
std::vector<LayerRange> split_layers(
    const std::vector<Layer>& layers, const InputShape& input, int64_t stages,
    const Cut& cut = {});

/// Returns the number of values that the last layer outputs for one sample.
int64_t num_outputs(const std::vector<Layer>& layers, const InputShape& input);

/// Removes all layers from `model` except those of stage `stage` of `stages`
/// (Model::keep_layers). With one stage and no cut, changes nothing and accepts any
/// model.
///
/// Returns all stages as text: "conv1, 320 parameters (1280 bytes) | conv2 fc1, ...".
/// Throws ConfigError for a model without layers(), and the errors of split_layers().
std::string keep_stage(
    Model& model, const InputShape& input, int64_t stages, int64_t stage,
    const Cut& cut = {});

}  // namespace tandem
