#pragma once

#include <cstdint>

#include "tandem/kernels/cuda/products.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

// Convolutions of two dimensions with stride 1, as PyTorch's conv2d computes them, and
// their gradients; a ReLU may follow. T: float or double.
//
// Images are NCHW and weights OIHW. NCHW since all around it is: batches (gather.h),
// the element numbers of dropout, what flatten() hands to a linear layer. And with it
// the weights are, as they lie in the parameter arena, the matrix to multiply by: a row
// of (channel, row, column) for each output channel.
//
// All arrays are on the device. Nothing is written outside of results and workspace,
// and nothing is read outside of the arrays. Sums are in an order that depends on the
// shape and the products only: the same bits twice, and on each GPU that rounds alike.
//
// Throws ConfigError for a shape that check_convolution() refuses, for products other
// than `full` of float64, and where the device runs code for GPUs before compute
// capability 8.0, which have no products of tf32 and bf16.

// A kernel's blocks have 128 threads and a tile of 64 x 64 sums, or 128 x 32 for up to
// 32 channels (tile_product.h says how it lies in shared memory). What nvcc 13.0 gives
// them, the larger of sm_80 and sm_90; there are no spills, nor for 86, 89, 100 and
// 120:
//
//              registers of a thread:             blocks on a multiprocessor,
//              forward and data   weights         by registers of sm_90
//              64x64    128x32    64x64  128x32   64x64  128x32
//   float64    172      178       166    164      2      2
//   float32    168      128       118    119      4      4
//   tf32       113      126       122    119      4      4
//   bf16       128      168       128    145      4      3
//   shared     21 KB    26 KB     21 KB  26 KB
//
// None of it has run on a GPU yet.

struct ConvolutionShape {
  int64_t images = 0;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  // Of the input.
  int64_t height = 0;
  int64_t width = 0;
  // Square: 1 to 5.
  int64_t kernel = 0;
  // Zeros on each side: 0 to 2.
  int64_t padding = 0;

  constexpr int64_t out_height() const {
    return height + 2 * padding - kernel + 1;
  }
  constexpr int64_t out_width() const {
    return width + 2 * padding - kernel + 1;
  }
};

/// Throws ConfigError unless kernel and padding are such as above, there is an output,
/// the positions of all images, the elements of one image and those of the weights are
/// below 2^31 - 2^16, and those of one input or output channel
/// below 2^25.
void check_convolution(const ConvolutionShape& shape);

/// output = the convolution + bias, negative values 0 with `relu`. `bias`: null for
/// none. A kernel; no workspace.
template <typename T>
void convolution(
    const ConvolutionShape& shape, Products products, const T* input, const T* weight,
    const T* bias, bool relu, T* output, Stream stream);

/// The gradient of the input. `output`: what a forward with `relu` wrote, or null
/// without. A kernel, the same as forward's: a convolution of `grad_output` with the
/// weights turned round; no workspace.
template <typename T>
void convolution_backward_data(
    const ConvolutionShape& shape, Products products, const T* grad_output,
    const T* output, const T* weight, T* grad_input, Stream stream);

/// How many values of T convolution_backward_weights() works with.
int64_t convolution_workspace(const ConvolutionShape& shape);

/// The gradients of weights and bias; `accumulate` adds them to what is there.
/// `output`: as above. `grad_bias`: null for none; its operands are rounded as the
/// weights' are. Two kernels: blocks add up parts of the positions, at least 512 each
/// and 64 parts at most; then each gradient's parts are added, in their order.
template <typename T>
void convolution_backward_weights(
    const ConvolutionShape& shape, Products products, const T* input,
    const T* grad_output, const T* output, bool accumulate, T* workspace,
    T* grad_weight, T* grad_bias, Stream stream);

}  // namespace tandem::cuda
