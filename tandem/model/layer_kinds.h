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

/// Ids of a layer's parameters and buffers in a graph; -1 for a tensor that the layer
/// does not have.
struct LayerValues {
  ValueId weight = -1;
  ValueId bias = -1;
  ValueId running_mean = -1;
  ValueId running_var = -1;
  ValueId num_batches = -1;
};

/// Properties of a kind of layer, as bits.
enum LayerTrait : unsigned {
  kNoLayerTrait = 0,
  // A compiled executor fuses a ReLU after this layer, or before this layer, into the
  // layer.
  kFusesReluAfter = 1,
  kFusesReluBefore = 2,
};

/// Properties of a kind of layer.
struct LayerKindRow {
  LayerKind kind;
  // ATen operator and its overload. The operator's row in graph/operators.cpp has
  // further properties.
  const char* target;
  const char* overload;
  // Returns the operator's arguments, without trailing arguments that have defaults.
  std::vector<Argument> (*arguments)(
      const Layer& layer, ValueId input, const LayerValues& values);
  // Returns Python's repr() of the module in torch.nn. Null if the tutorials' networks
  // call a function instead of a module.
  std::string (*repr)(const Layer& layer);
  // Bits of LayerTrait.
  unsigned traits = kNoLayerTrait;
  // Returns the shape of the output for one sample. Null if the output has the shape of
  // the input.
  InputShape (*output)(const Layer& layer, const InputShape& input) = nullptr;
  // Returns the initial values of PyTorch's module. Parameters are float32; running
  // statistics have `dtype`. Null if the layer has no parameters.
  LayerState (*initialize)(
      const Layer& layer, at::ScalarType dtype,
      const at::Generator& generator) = nullptr;

  bool has(LayerTrait trait) const {
    return (traits & trait) != 0;
  }
};

/// Returns the properties of the layer's kind.
const LayerKindRow& row_of(const Layer& layer);

/// Returns the values that the layer's operator rounds to 16 bits.
RoundedValues rounds_of(const Layer& layer);

/// Returns the shape of the layer's output for one sample of shape `input`.
InputShape output_of(const Layer& layer, const InputShape& input);

}  // namespace tandem
