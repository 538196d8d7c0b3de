#pragma once

#include <cstdint>

// Gradient of a convolution's weights with AMX tiles, from images with channels last.
// Call these functions only if has_amx().
//
// An image with its padding is one long row of pixels. The window's offset (y, x) is a
// shift by y * width + x along it. The gradient of the outputs is laid out on the same
// grid, with zeros where a window would leave the image. Example: 4 x 3 pixels (i) with
// a padding of 1 (.), and the gradient (g) for a window of 3 x 3:
//
//   . . . . . .      g g g g 0 0      So the gradient of the weights at an offset is
//   . i i i i .      g g g g 0 0      one product of two long matrices: channels of
//   . i i i i .      g g g g 0 0      the gradient by pixels, and shifted pixels by
//   . i i i i .                       channels of the image.
//   . . . . . .
//
// There are two copies of the image, in pairs of pixels as a right factor needs them: 0
// and 1, 2 and 3, ... for even shifts; 1 and 2, 3 and 4, ... for odd shifts. A pair of
// 16 channels is a cache line, so tiles begin at a cache line for every shift.

namespace tandem {

enum class Bf16 : uint16_t;

namespace amx {

/// Shape of a convolution with square windows and stride 1.
struct ConvolutionShape {
  // Multiples of 16.
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  // Size of an image without its padding.
  int64_t height = 0;
  int64_t width = 0;
  int64_t kernel = 0;
  int64_t padding = 0;
};

/// Returns the size of one laid-out image, in bytes; a multiple of 64.
int64_t image_bytes(const ConvolutionShape& shape);
/// Returns the size of one laid-out gradient, in bytes; a multiple of 64.
int64_t grad_bytes(const ConvolutionShape& shape);

/// Lays out an image of [height x width x in_channels].
void lay_out_image(const ConvolutionShape& shape, const Bf16* image, void* to);

/// Lays out a gradient of [output height x output width x out_channels], and writes its
/// sum over the pixels to `bias_grad`, out_channels values.
void lay_out_grad(
    const ConvolutionShape& shape, const Bf16* grad, void* to, float* bias_grad);

/// Returns the number of tasks that compute the sums for the weights. They may run in
/// parallel.
int64_t num_tasks(const ConvolutionShape& shape);

/// Returns the size of the float32 sums, in bytes. Align them to 64 bytes.
int64_t sums_bytes(const ConvolutionShape& shape);

/// Adds `count` laid-out images to a task's sums. With `first` the sums start at zero.
void add_images(
    const ConvolutionShape& shape, int64_t task, const void* images, const void* grads,
    int64_t count, bool first, void* sums);

/// Writes the sums to [out_channels x in_channels x kernel x kernel], or adds them if
/// `accumulate`.
void store_weight_grad(
    const ConvolutionShape& shape, const void* sums, bool accumulate, float* to);

}  // namespace amx

}  // namespace tandem
