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

/// Where a model is divided.
struct Cut {
  // The layers with which the stages begin, but for the first: as many as there are
  // stages less one, in any order. None: as `balance` says.
  std::vector<std::string> layers;
  Balance balance = Balance::time;
};

/// Divides layers into contiguous stages at `cut.layers`, or such that the most
/// expensive stage costs as little as possible; of several such ways, the one whose
/// first stages are longest.
///
/// A stage begins with a convolution or a linear layer (the first stage includes
/// what comes before that), so that what follows such a layer stays with it: batch
/// norm, an activation in place. The cost in time is the multiplications of those
/// layers, and ten for each value that a layer writes; in memory it is their
/// parameters. A pure function.
///
/// Throws ConfigError when there are more stages than convolutions and linear layers,
/// and for a cut at no such layer, or that makes another number of stages.
std::vector<LayerRange> split_layers(
    const std::vector<Layer>& layers, const InputShape& input, int64_t stages,
    const Cut& cut = {});

/// Returns the number of values that the layers output for one sample.
int64_t num_outputs(const std::vector<Layer>& layers, const InputShape& input);

/// Leaves in `model` only its stage `stage` of `stages` (Model::keep_layers). With
/// one stage and no cut any model stays as it is.
///
/// Returns all stages as text: "conv1, 320 parameters (1280 bytes) | conv2 fc1, ...".
/// Throws ConfigError for a model without layers(), and as split_layers().
std::string keep_stage(
    Model& model, const InputShape& input, int64_t stages, int64_t stage,
    const Cut& cut = {});

}  // namespace tandem
