#pragma once

#include <cstdint>

// Functions that compute the gradient of a convolution's weights with AMX tiles. Images
// are in NHWC layout. Call the functions only if has_amx() returns true.
//
// An image is stored with its padding, as one long row of pixels. A padded line has
// w = width + 2 * padding pixels, so an offset (y, x) in the kernel is a shift of
// y * w + x pixels. The gradient of the outputs also has w pixels per line, with zeros
// at positions without an output. Example: an image of 4 x 3 pixels (i) with a padding
// of 1 (.), and the gradient of the outputs (g) for a kernel of 3 x 3:
//
//   . . . . . .      g g g g 0 0
//   . i i i i .      g g g g 0 0
//   . i i i i .      g g g g 0 0
//   . i i i i .
//   . . . . . .
//
// For each offset, the gradient of the weights is one product of two long matrices. The
// left matrix is the gradient of the outputs, out_channels x pixels. The right matrix
// is the shifted image, pixels x in_channels.
//
// AMX needs the rows of a right factor, here the pixels, in pairs (amx_tiles.h). There
// are two copies of the image. The first has the pairs 0 and 1, 2 and 3, ... for even
// shifts. The second has the pairs 1 and 2, 3 and 4, ... for odd shifts. A pair of
// pixels with 16 channels is a cache line, so tiles begin at a cache line for every
// shift.

namespace tandem {

enum class Bf16 : uint16_t;

namespace amx {

/// Shape of a convolution with square windows and stride 1.
struct ConvolutionShape {
  // Numbers of channels, multiples of 16.
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  // Size of an image without padding, in pixels.
  int64_t height = 0;
  int64_t width = 0;
  int64_t kernel = 0;
  int64_t padding = 0;
};

/// Returns the size of the result of lay_out_image(), in bytes; a multiple of 64.
int64_t image_bytes(const ConvolutionShape& shape);
/// Returns the size of the result of lay_out_grad(), in bytes; a multiple of 64.
int64_t grad_bytes(const ConvolutionShape& shape);

/// Converts an image of [height x width x in_channels] to the layout of add_images().
void lay_out_image(const ConvolutionShape& shape, const Bf16* image, void* to);

/// Converts a gradient of [output height x output width x out_channels] to the layout
/// of add_images(). Writes the sum of the gradient over all pixels to `bias_grad`,
/// which has out_channels values.
void lay_out_grad(
    const ConvolutionShape& shape, const Bf16* grad, void* to, float* bias_grad);

/// Returns the number of tasks into which the gradient of the weights is divided. Tasks
/// may run in parallel.
int64_t num_tasks(const ConvolutionShape& shape);

/// Returns the size of the float32 sums of all tasks, in bytes. Align their memory to
/// 64 bytes.
int64_t sums_bytes(const ConvolutionShape& shape);

/// Adds the products of `count` images and gradients to the sums of a task. If `first`
/// is true, sets the sums to zero before.
void add_images(
    const ConvolutionShape& shape, int64_t task, const void* images, const void* grads,
    int64_t count, bool first, void* sums);

/// Writes the sums of all tasks to `to`, the weights' gradient [out_channels x
/// in_channels x kernel x kernel]. If `accumulate` is true, adds the sums to `to`.
void store_weight_grad(
    const ConvolutionShape& shape, const void* sums, bool accumulate, float* to);

}  // namespace amx

}  // namespace tandem
