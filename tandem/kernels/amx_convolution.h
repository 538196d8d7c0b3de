#pragma once

#include <cstdint>

// The gradient of a convolution's weights with AMX tiles, from images with channels
// last. Callers have seen has_amx().
//
// An image, with its padding, is one long row of pixels; the window's offset (y, x) is
// a shift by y * width + x along it. The gradient of the outputs is laid out on the
// same grid, zero where a window would leave the image. So the gradient of the weights
// at an offset is one product of two long matrices: channels of the gradient by pixels,
// and pixels by channels of the image. The image lies there twice, in pairs that begin
// with even and with odd pixels, so that shifted tiles are whole cache lines.

namespace tandem {

enum class Bf16 : uint16_t;

namespace amx {

/// Windows are square, and move by one pixel.
struct ConvolutionShape {
  // Multiples of 16.
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  // Of an image without its padding.
  int64_t height = 0;
  int64_t width = 0;
  int64_t kernel = 0;
  int64_t padding = 0;
};

/// Bytes of one laid out image, and of its gradient; multiples of 64.
int64_t image_bytes(const ConvolutionShape& shape);
int64_t grad_bytes(const ConvolutionShape& shape);

/// `image`: [height x width x in_channels].
void lay_out_image(const ConvolutionShape& shape, const Bf16* image, void* to);

/// `grad`: [output height x output width x out_channels]. `bias_grad`: what it adds up
/// to over the pixels, out_channels float32.
void lay_out_grad(
    const ConvolutionShape& shape, const Bf16* grad, void* to, float* bias_grad);

/// Tasks that the sums of weights fall into; any number of them may run at once.
int64_t num_tasks(const ConvolutionShape& shape);

/// Float32 sums; 64-byte aligned.
int64_t sums_bytes(const ConvolutionShape& shape);

/// Adds `count` laid out images to a task's sums, or, with `first`, sets them.
void add_images(
    const ConvolutionShape& shape, int64_t task, const void* images, const void* grads,
    int64_t count, bool first, void* sums);

/// To [out_channels x in_channels x kernel x kernel]; `accumulate`: added to it.
void store_weight_grad(
    const ConvolutionShape& shape, const void* sums, bool accumulate, float* to);

}  // namespace amx

}  // namespace tandem
