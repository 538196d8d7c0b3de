#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tandem/core/arena.h"
#include "tandem/model/layer_kinds.h"

namespace tandem {

/// A layer, possibly with a fused ReLU.
struct FusedLayer {
  Layer layer;
  // True if a ReLU is fused into the layer.
  bool relu = false;
  // True for the first layer with parameters of the whole model. The gradient of its
  // input is not needed.
  bool first = false;
  // True if the input is bfloat16 when products are bfloat16. If products are float32,
  // the input is float32.
  bool bf16_input = false;
};

/// A layer's parameters and buffers, and the slices of the gradient arena for the
/// gradients of its parameters. The tensors are contiguous, or undefined if the layer
/// has no such tensor.
///
/// If all parameters of a layer are frozen, the gradients are undefined. If only some
/// parameters are frozen, the gradients of all parameters are computed, and the
/// gradients of frozen parameters are stored outside the arena.
struct LayerTensors : LayerState {
  at::Tensor weight_grad;
  at::Tensor bias_grad;

  /// Returns whether the layer has trainable parameters.
  bool is_trained() const {
    return weight_grad.defined();
  }
};

/// Returns whether the tensors are those of a grouped convolution. Its weight has the
/// shape groups x out / groups x in / groups x height x width, as in oneDNN.
inline bool has_groups(const LayerTensors& tensors) {
  return tensors.weight.dim() == 5;
}

struct BoundLayer {
  FusedLayer fused;
  LayerTensors tensors;
  // Indices of the slots of the trainable bias and weight in the arenas' layout.
  std::vector<size_t> slots;
};

/// Fuses ReLUs with their neighbors, and finds the layers' tensors in the model's
/// arenas.
///
/// A ReLU before a max pool is fused into the pool, so that the ReLU's gradient needs
/// no separate pass. Any other ReLU is fused into the layer before it if that layer
/// supports it (kFusesReluAfter). Otherwise the ReLU remains a layer.
std::vector<BoundLayer> bind_layers(
    const std::vector<Layer>& layers, ModelArenas& arenas);

}  // namespace tandem
