#pragma once

#include <cstdint>

#include "tandem/kernels/cuda/parameter_gradients.h"
#include "tandem/kernels/cuda/products.h"
#include "tandem/kernels/cuda/relu_and_dropout.h"
#include "tandem/kernels/cuda/stream.h"
#include "tandem/kernels/cuda/workspace.h"

namespace tandem::cuda {

// Linear layers, as PyTorch's linear computes them, and their gradients; a ReLU may
// follow, and dropout behind that. T: float or double.
//
// `input`: samples x in; `output`: samples x out; `weight`: out x in, as it lies in the
// parameter arena. All arrays are on the device. Nothing is written outside of results
// and workspace, and nothing is read outside of the arrays. Sums are in an order that
// depends on the shape and the products only: the same bits twice.
//
// Throws ConfigError for a shape that check_linear() refuses, for products other than
// `full` of float64, and where the device runs code for GPUs before compute capability
// 8.0, which have no products of tf32 and bf16.

// Tiles are those of convolution.h: blocks of 128 threads with 64 x 64 sums, or 128 x
// 32 for layers of up to 32 outputs. A sample is a row of them, and a column an output;
// of the weights' gradient, a row is an input and a column an output. Where there are
// fewer than 128 tiles, forward and backward for the data divide what is added up among
// blocks, 128 values or more for each (tile_parts.h): 64 samples of 9216 inputs and 128
// outputs are 2 tiles in 58 parts.

struct LinearShape {
  int64_t samples = 0;
  int64_t in = 0;
  int64_t out = 0;
};

/// Throws ConfigError unless a sample has inputs and outputs, fewer than 2^21 each, and
/// those of all samples and the weights and biases are fewer than 2^31 - 2^16 each.
void check_linear(const LinearShape& shape);

/// What the gradient of a layer's output is.
template <typename T>
struct LinearGradient {
  const T* values;
  // What a forward with a ReLU wrote, or null without; a gradient counts where that is
  // above 0, which it is not where dropout took it.
  const T* output = nullptr;
  // Of that dropout (ReluAndDropout).
  double scale = 1;
};

/// What linear() and linear_backward() work with.
WorkspaceSize linear_workspace(const LinearShape& shape);

/// output = input * weight^T + bias, and what is `behind` it, whose elements are the
/// outputs of a sample. `bias`: null for none. One kernel.
template <typename T>
void linear(
    const LinearShape& shape, Products products, const T* input, const T* weight,
    const T* bias, const ReluAndDropout& behind, const Workspace<T>& workspace,
    T* output, Stream stream);

/// The gradients of weights and bias, whose operands are rounded as the weights' are,
/// and of the input. `grad_input`: null for none. One kernel.
template <typename T>
void linear_backward(
    const LinearShape& shape, Products products, const T* input, const T* weight,
    const LinearGradient<T>& gradient, const Workspace<T>& workspace,
    const ParameterGradients<T>& gradients, T* grad_input, Stream stream);

}  // namespace tandem::cuda
