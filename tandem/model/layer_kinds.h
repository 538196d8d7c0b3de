#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/model/model.h"

namespace tandem {

/// Parameters and buffers of a layer. A tensor that the layer does not have is
/// undefined.
struct LayerState {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches;
};

/// Arguments of a layer's forward pass, besides its input.
struct LayerCall {
  const Layer& layer;
  LayerState& state;
  const ForwardContext& context;
  // See ModelOptions::stack_statistics.
  const StackFunction& stack_statistics;
  // True if the layer may overwrite its input.
  bool in_place = false;
};

/// Values that a layer rounds to 16 bits, forward and backward (core/numerics.h).
enum class RoundedValues {
  // Each output is a value of the input, so it is rounded already.
  none,
  output,
  // Input, parameters and output, in convolutions and linear layers.
  all,
  // The gradient of the input; in fp16_o2 also the output.
  output_in_o2,
};

/// Properties of a kind of layer, as bits.
enum LayerTrait : unsigned {
  kNoLayerTrait = 0,
  // A stage of a pipeline may begin here.
  kBeginsStage = 1,
  // Backward reads only the input, so the next layer may overwrite the output.
  kKeepsOnlyInput = 2,
  // Compiled executors fuse a ReLU that follows or precedes this layer.
  kFusesReluAfter = 4,
  kFusesReluBefore = 8,
  // A model without ModelOptions::dropout leaves out this layer.
  kIsDropout = 16,
};

/// Properties of a kind of layer. A new kind needs a LayerKind and a factory
/// (layers.h), a row in layer_kinds.cpp, and a kernel with a row in
/// exec/compiled/operation.cpp.
struct LayerKindRow {
  LayerKind kind;
  // Name in torch.nn.functional. The ATen operator has the same name, except as noted
  // in the table.
  const char* name;
  at::Tensor (*forward)(const LayerCall& call, const at::Tensor& x);
  // Cost in a pipeline's stage, in multiplications. Null: no cost.
  double (*cost)(const Layer& layer, const InputShape& output);
  // Python's repr() of the module in torch.nn; null if there is no such module.
  std::string (*repr)(const Layer& layer);
  RoundedValues rounds = RoundedValues::none;
  // Bits of LayerTrait.
  unsigned traits = kNoLayerTrait;
  // Shape of a sample's output. Null: the shape of the input.
  InputShape (*output)(const Layer& layer, const InputShape& input) = nullptr;
  // Shape of the weight; its first dimension is also the size of the bias. Null if the
  // layer has no parameters.
  std::vector<int64_t> (*weight)(const Layer& layer) = nullptr;
  // Initial values of PyTorch's module. Parameters are float32; buffers have `dtype`.
  LayerState (*initialize)(
      const Layer& layer, at::ScalarType dtype,
      const at::Generator& generator) = nullptr;

  bool has(LayerTrait trait) const {
    return (traits & trait) != 0;
  }
};

/// Returns the row of the layer's kind.
const LayerKindRow& row_of(const Layer& layer);

/// Returns the shape of the layer's output for one sample of shape `input`.
InputShape output_of(const Layer& layer, const InputShape& input);

}  // namespace tandem
