#pragma once

#include <cstdint>

#include "tandem/kernels/cuda/products.h"
#include "tandem/kernels/cuda/relu_and_dropout.h"
#include "tandem/kernels/cuda/stream.h"

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
// 32 for up to 32 columns. A sample is a row of them, and a column an output; of the
// weights' gradient, a row is an input and a column an output. Where there are fewer
// than 128 tiles, forward and backward for the data divide what is added up among
// blocks, 128 values or more for each, and a second kernel of 256 threads adds the
// parts in their order: 64 samples of 9216 inputs and 128 outputs are 2 tiles in 58
// parts. Else it is one kernel.

struct LinearShape {
  int64_t samples = 0;
  int64_t in = 0;
  int64_t out = 0;
};

/// Throws ConfigError unless a sample has inputs and outputs, fewer than 2^21 each, and
/// those of all samples and the weights and biases are fewer than 2^31 - 2^16 each.
void check_linear(const LinearShape& shape);

/// How many values of T linear() and linear_backward_data() work with.
int64_t linear_workspace(const LinearShape& shape);

/// output = input * weight^T + bias, and what is `behind` it, whose elements are the
/// outputs of a sample. `bias`: null for none.
template <typename T>
void linear(
    const LinearShape& shape, Products products, const T* input, const T* weight,
    const T* bias, const ReluAndDropout& behind, T* workspace, T* output,
    Stream stream);

/// The gradient of the input. `output`: what a forward with a ReLU wrote, or null
/// without; a gradient counts where that is above 0, which it is not where dropout took
/// it. `scale`: of that dropout, or 1.
template <typename T>
void linear_backward_data(
    const LinearShape& shape, Products products, const T* grad_output, const T* output,
    double scale, const T* weight, T* workspace, T* grad_input, Stream stream);

/// The gradients of weights and bias; `accumulate` adds them to what is there.
/// `output` and `scale`: as above. `grad_bias`: null for none; its operands are rounded
/// as the weights' are. One kernel.
template <typename T>
void linear_backward_weights(
    const LinearShape& shape, Products products, const T* input, const T* grad_output,
    const T* output, double scale, bool accumulate, T* grad_weight, T* grad_bias,
    Stream stream);

}  // namespace tandem::cuda
