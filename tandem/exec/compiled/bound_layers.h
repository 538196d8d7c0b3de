#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tandem/core/arena.h"
#include "tandem/model/layer_kinds.h"

namespace tandem {

/// A layer, and the operations fused into the pass over its output.
struct FusedLayer {
  Layer layer;
  // Applies a ReLU to the output.
  bool relu = false;
  // The gradient of the input is not needed.
  bool first = false;
  // With bfloat16 products: the input's values are bfloat16.
  bool bf16_input = false;
};

/// A layer's parameters and buffers, and the slices of the gradient arena that belong
/// to the parameters. Contiguous; undefined if the layer has none.
struct LayerTensors : LayerState {
  at::Tensor weight_grad;
  at::Tensor bias_grad;
};

struct BoundLayer {
  FusedLayer fused;
  LayerTensors tensors;
  // Places of the parameters in the arenas' layout, in the order of the arena; empty if
  // there are none.
  std::vector<size_t> slots;
};

/// Fuses ReLUs with their neighbors, and finds the layers' tensors in the model's
/// arenas.
///
/// A ReLU is fused with the max pool after it, whose gradient then needs no pass for
/// the ReLU, otherwise with the layer before it; without such a neighbor it remains a
/// layer.
std::vector<BoundLayer> bind_layers(
    const std::vector<Layer>& layers, ModelArenas& arenas);

}  // namespace tandem
