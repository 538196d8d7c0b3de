#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/model/layer_kinds.h"

namespace tandem {

// What executors that compile a layered model begin with: its layers, with what one of
// them does in the same pass as another, and their tensors.

/// A layer, and what else it does in the same pass over its output.
struct FusedLayer {
  Layer layer;
  // Whether it takes the ReLU beside it along: one after a convolution, linear layer or
  // batch norm, or on either side of a max pool.
  bool relu = false;
  // Nobody wants the gradient of its input.
  bool first = false;
  // With bfloat16 products: whether the input's values are bfloat16.
  bool bf16_input = false;
};

/// A layer's parameters and buffers, and the slices of the gradient arena that belong
/// to the parameters. Contiguous.
struct LayerTensors : LayerState {
  at::Tensor weight_grad;
  at::Tensor bias_grad;
};

struct BoundLayer {
  FusedLayer fused;
  LayerTensors tensors;
  // The places of the parameters in the arenas' layout, in the order of the arena;
  // empty where there are none.
  std::vector<size_t> slots;
};

/// A ReLU goes with the pool after it, whose gradient then needs no pass for the ReLU,
/// or else with the layer before it; where there is neither, it is a layer.
std::vector<FusedLayer> fuse_relus(const std::vector<Layer>& layers);

/// Such layers with their tensors in the model's arenas.
std::vector<BoundLayer> bind_layers(
    const std::vector<Layer>& layers, ModelArenas& arenas);

/// Which layer is the first whose gradients somebody wants: on a model's first stage
/// the first with parameters. As many as there are layers where there is none.
size_t first_with_gradient(const std::vector<BoundLayer>& layers, bool first_stage);

/// Why none of these executors can run the model, in a few words; "" when they can.
std::string layers_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options);

}  // namespace tandem
