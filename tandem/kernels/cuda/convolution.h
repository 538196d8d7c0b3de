#pragma once

#include <cstdint>

#include "tandem/kernels/cuda/parameter_gradients.h"
#include "tandem/kernels/cuda/products.h"
#include "tandem/kernels/cuda/relu_and_dropout.h"
#include "tandem/kernels/cuda/stream.h"
#include "tandem/kernels/cuda/workspace.h"

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
// them, the larger of sm_80 and sm_90; of bf16, tiles of 128 x 32 for the input's
// gradient spill 4 bytes, and on sm_120 one of forward's 12, the rest nothing:
//
//              registers of a thread:               blocks on a multiprocessor,
//              forward          backward            by registers of sm_90
//              64x64   128x32   data's tile         forward         backward
//                               64x64    128x32     64x64  128x32   64x64  128x32
//   float64    168     180      178      174          2      2        2      2
//   float32    128     128      168      168          4      4        3      3
//   tf32       111     123      113      124          4      4        4      4
//   bf16       126     168      128      168          4      3        4      3
//   shared     21 KB   26 KB    21 KB    26 KB
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

/// A convolution and what max_pool() (pool.h) makes of its output, which is 2 x 2 at
/// least and is not written: the same bits. `largest`: as of
/// max_pool_backward(), or null where nobody needs it. A kernel; no workspace.
template <typename T>
void convolution_and_pool(
    const ConvolutionShape& shape, Products products, const T* input, const T* weight,
    const T* bias, const ReluAndDropout& behind, T* output, uint8_t* largest,
    Stream stream);

/// What convolution_backward() works with.
WorkspaceSize convolution_workspace(const ConvolutionShape& shape);

/// The gradients of weights and bias, whose operands are rounded as the weights' are,
/// and of the input, which is a convolution of `grad_output` with the weights turned
/// round. `output`: what a forward with `relu` wrote, or null without. `grad_input`:
/// null for none. One kernel; for the weights, blocks add up parts of the positions, at
/// least 512 each and 64 parts at most (tile_parts.h).
template <typename T>
void convolution_backward(
    const ConvolutionShape& shape, Products products, const T* input, const T* weight,
    const T* grad_output, const T* output, const Workspace<T>& workspace,
    const ParameterGradients<T>& gradients, T* grad_input, Stream stream);

}  // namespace tandem::cuda
