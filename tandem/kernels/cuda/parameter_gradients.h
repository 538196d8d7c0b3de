#pragma once

namespace tandem::cuda {

/// Where the gradients of a layer's weights and bias go, on the device.
template <typename T>
struct ParameterGradients {
  T* weight;
  // Null: none.
  T* bias;
  // Adds them to what is there.
  bool accumulate;
};

}  // namespace tandem::cuda
