#pragma once

#include <cstdint>

// The gradient of a convolution's weights with AMX tiles, from images with channels
// last. For callers that have checked has_amx().
//
// An image, with its padding, is one long row of pixels; the window's offset (y, x) is
// a shift by y * width + x along it. The gradient of the outputs is laid out on the
// same grid, zero where a window would leave the image. Here 4 x 3 pixels (i), with a
// padding of 1 (.), and the gradient (g) of a window of 3 x 3:
//
//   . . . . . .      g g g g 0 0      So the gradient of the weights at an offset is
//   . i i i i .      g g g g 0 0      one product of two long matrices: channels of
//   . i i i i .      g g g g 0 0      the gradient by pixels, and shifted pixels by
//   . i i i i .                       channels of the image.
//   . . . . . .
//
// The image is there twice, in pairs of pixels as a right side needs them: 0 and 1, 2
// and 3, ... for even shifts; 1 and 2, 3 and 4, ... for odd ones. A pair of 16 channels
// is a cache line, so tiles begin at a cache line, whatever the shift.

namespace tandem {

enum class Bf16 : uint16_t;

namespace amx {

/// Windows are square, and move by one pixel.
struct ConvolutionShape {
  // Both are multiples of 16.
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  // The size of an image without its padding.
  int64_t height = 0;
  int64_t width = 0;
  int64_t kernel = 0;
  int64_t padding = 0;
};

/// Bytes of one laid-out image, and of its gradient; multiples of 64.
int64_t image_bytes(const ConvolutionShape& shape);
int64_t grad_bytes(const ConvolutionShape& shape);

/// `image`: [height x width x in_channels].
void lay_out_image(const ConvolutionShape& shape, const Bf16* image, void* to);

/// `grad`: [output height x output width x out_channels]. `bias_grad`: its sum over the
/// pixels, out_channels float32.
void lay_out_grad(
    const ConvolutionShape& shape, const Bf16* grad, void* to, float* bias_grad);

/// The number of tasks into which the sums for the weights are divided; they may run at
/// the same time.
int64_t num_tasks(const ConvolutionShape& shape);

/// Bytes of the float32 sums, which are to be 64-byte aligned.
int64_t sums_bytes(const ConvolutionShape& shape);

/// Adds `count` laid-out images to a task's sums, or, with `first`, sets them.
void add_images(
    const ConvolutionShape& shape, int64_t task, const void* images, const void* grads,
    int64_t count, bool first, void* sums);

/// Writes sums to [out_channels x in_channels x kernel x kernel]; `accumulate`: adds
/// them.
void store_weight_grad(
    const ConvolutionShape& shape, const void* sums, bool accumulate, float* to);

}  // namespace amx

}  // namespace tandem
