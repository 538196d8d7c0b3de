#pragma once

#include <cstdint>

namespace tandem {

enum class Bf16 : uint16_t;

/// Images as pooling sees them: `outer` planes of rows of pixels, each of `lanes`
/// neighbouring values, a multiple of 8. In nhwc a plane is an image, and lanes are its
/// channels; in nChw16c and nChw8c a plane is 16 or 8 channels of an image.
struct PoolShape {
  int64_t outer = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t lanes = 0;
  // The size of the square windows, which do not overlap. What is left over at the
  // right and at the bottom is in none.
  int64_t kernel = 0;

  int64_t out_height() const {
    return height / kernel;
  }
  int64_t out_width() const {
    return width / kernel;
  }
};

/// What `which` holds for a window whose largest value the ReLU cuts off: no input has
/// a gradient. Other windows have the place of an input: y * kernel + x.
constexpr uint8_t kNoInput = 255;

// The loops over one plane, for each instruction set that there is code for.
//
// max_pool_plane: with `relu` negative results become 0. NaN wins, as in PyTorch. Of
// equal inputs the first in its window counts. Windows of at most 15 x 15.
// spread_plane writes all of `grad_in`.
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
  }
TANDEM_POOL_LOOPS(avx512)
TANDEM_POOL_LOOPS(avx2)
TANDEM_POOL_LOOPS(neon)
TANDEM_POOL_LOOPS(base)
#undef TANDEM_POOL_LOOPS

}  // namespace tandem
