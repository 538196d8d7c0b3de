#pragma once

#include <cstdint>

namespace tandem {

enum class Bf16 : uint16_t;

/// Shape of the input of pooling. In the layout nhwc, a plane is an image. In
/// nChw16c and nChw8c, a plane is 16 or 8 channels of an image.
struct PoolShape {
  // Number of planes.
  int64_t outer = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Number of channels of a pixel that are adjacent in memory, a multiple of 8.
  int64_t lanes = 0;
  // Size of the square windows, which do not overlap. Remaining pixels at the right and
  // at the bottom belong to no window.
  int64_t kernel = 0;

  int64_t out_height() const {
    return height / kernel;
  }
  int64_t out_width() const {
    return width / kernel;
  }
};

/// Value of `which` for a window that gets no gradient, because a ReLU is fused and the
/// largest value in the window is not positive. For other windows, `which` is the index
/// y * kernel + x of the largest input in the window.
constexpr uint8_t kNoInput = 255;
/// Largest height and width of a window of max pooling, whose pixels `which` numbers.
constexpr int64_t kMostPoolSize = 15;

// Loops of pooling over one plane, for each instruction set.
//
// - max_pool_plane: computes `out` and `which`. With `relu`, negative outputs become 0.
//   NaN is the largest value, as in PyTorch. Among equal inputs, the first is selected.
// - spread_plane: computes the gradient of the input. Writes all values of `grad_in`.
// - mean_plane: computes the mean of each window. Adds pixels in row-major order, so
//   that the results have the bits of PyTorch's.
// - spread_mean_plane: computes the gradient of mean_plane()'s input. Writes all values
//   of `grad_in`.
#define TANDEM_POOL_LOOPS(isa)                                                         \
  namespace isa {                                                                      \
  void max_pool_plane(                                                                 \
      const PoolShape& shape, bool relu, const float* in, float* out, uint8_t* which); \
  void max_pool_plane(                                                                 \
      const PoolShape& shape, bool relu, const Bf16* in, Bf16* out, uint8_t* which);   \
  void spread_plane(                                                                   \
      const PoolShape& shape, const uint8_t* which, const float* grad_out,             \
      float* grad_in);                                                                 \
  void spread_plane(                                                                   \
      const PoolShape& shape, const uint8_t* which, const Bf16* grad_out,              \
      Bf16* grad_in);                                                                  \
  void mean_plane(const PoolShape& shape, const float* in, float* out);                \
  void spread_mean_plane(                                                              \
      const PoolShape& shape, const float* grad_out, float* grad_in);                  \
  }
TANDEM_POOL_LOOPS(avx512)
TANDEM_POOL_LOOPS(avx2)
TANDEM_POOL_LOOPS(neon)
TANDEM_POOL_LOOPS(base)
#undef TANDEM_POOL_LOOPS

}  // namespace tandem
