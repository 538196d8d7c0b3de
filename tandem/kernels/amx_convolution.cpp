// Compiled for AMX (CMakeLists.txt), so it must not include inline functions that other
// files use.

#include "tandem/kernels/amx_convolution.h"

#include "tandem/kernels/amx_tiles.h"

namespace tandem::amx {

namespace {

// Numbers of x offsets and of tiles of output channels for which a task keeps sums. The
// sums use six of the eight tiles, and the product needs one tile for each factor.
constexpr int64_t kOffsets = 3;
constexpr int64_t kOutTiles = 2;

struct Grid {
  explicit Grid(const ConvolutionShape& s)
      : width(s.width + 2 * s.padding),
        out_width(width - s.kernel + 1),
        out_height(s.height + 2 * s.padding - s.kernel + 1),
        pixels(up_to(out_height * width, kDepth)),
        pairs(up_to(pixels + (s.kernel - 1) * (width + 1), kDepth) / 2) {}

  int64_t width;
  int64_t out_width;
  int64_t out_height;
  // Number of pixels that are summed over, a multiple of 32.
  int64_t pixels;
  // Number of pairs in one copy of the image, a multiple of 16. The pairs extend beyond
  // `pixels` by the largest shift.
  int64_t pairs;
};

// Iterates over the pixels of a grid with `width` columns. Only the pixels of a
// rectangle have values. It begins at (top, left) and has `height` rows of `inner`
// pixels.
class Walk {
 public:
  Walk(
      const Bf16* values, int64_t channels, int64_t width, int64_t top, int64_t left,
      int64_t height, int64_t inner)
      : values_(values),
        channels_(channels),
        width_(width),
        left_(left),
        height_(height),
        inner_(inner),
        y_(-top),
        x_(-left) {}

  // Returns the channels of the next pixel; null if the pixel is outside the rectangle.
  const Bf16* next() {
    const bool inside = y_ >= 0 && y_ < height_ && x_ >= 0 && x_ < inner_;
    const Bf16* found = inside ? values_ + (y_ * inner_ + x_) * channels_ : nullptr;
    if (++x_ == width_ - left_) {
      x_ = -left_;
      ++y_;
    }
    return found;
  }

 private:
  const Bf16* values_;
  int64_t channels_;
  int64_t width_;
  int64_t left_;
  int64_t height_;
  int64_t inner_;
  int64_t y_;
  int64_t x_;
};

inline __m256i channels_at(const Bf16* pixel, int64_t channel) {
  return pixel == nullptr ? _mm256_setzero_si256()
                          : _mm256_loadu_epi16(pixel + channel);
}

inline __m512 as_floats(__m512i upper_halves) {
  return _mm512_castsi512_ps(upper_halves);
}

// Writes 16 channels of 32 pixels as the rows of a left factor. Returns each channel's
// sum.
inline __m512 turn_pixels(const Bf16* const (&pixels)[32], int64_t channel, char* to) {
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  __m512i r[16];
  for (int i = 0; i < 16; ++i) {
    const __m512i even = _mm512_cvtepu16_epi32(channels_at(pixels[2 * i], channel));
    const __m512i odd = _mm512_slli_epi32(
        _mm512_cvtepu16_epi32(channels_at(pixels[2 * i + 1], channel)), 16);
    sums[0] = _mm512_add_ps(sums[0], as_floats(_mm512_slli_epi32(even, 16)));
    sums[1] = _mm512_add_ps(sums[1], as_floats(odd));
    r[i] = _mm512_or_si512(even, odd);
  }
  transpose(r);
  for (int i = 0; i < 16; ++i) {
    _mm512_store_si512(to + i * kRowBytes, r[i]);
  }
  return _mm512_add_ps(sums[0], sums[1]);
}

// Writes 16 channels of 33 pixels as pairs that begin with even pixels, and as pairs
// that begin with odd pixels.
inline void pair_pixels(
    const Bf16* const (&pixels)[33], int64_t channel, char* even, char* odd) {
  __m512i before = _mm512_cvtepu16_epi32(channels_at(pixels[0], channel));
  for (int i = 0; i < 16; ++i) {
    const __m512i middle =
        _mm512_cvtepu16_epi32(channels_at(pixels[2 * i + 1], channel));
    const __m512i after =
        _mm512_cvtepu16_epi32(channels_at(pixels[2 * i + 2], channel));
    _mm512_store_si512(
        even + i * kRowBytes, _mm512_or_si512(before, _mm512_slli_epi32(middle, 16)));
    _mm512_store_si512(
        odd + i * kRowBytes, _mm512_or_si512(middle, _mm512_slli_epi32(after, 16)));
    before = after;
  }
}

// Sums of one task: for a tile of input channels and a row of the window, up to three
// offsets in the row and two tiles of output channels.
struct Task {
  Task(const ConvolutionShape& s, int64_t index) {
    const int64_t out_groups = (s.out_channels / kTile + kOutTiles - 1) / kOutTiles;
    const int64_t x_groups = (s.kernel + kOffsets - 1) / kOffsets;
    out_tile = index % out_groups * kOutTiles;
    index /= out_groups;
    x = index % x_groups * kOffsets;
    index /= x_groups;
    y = index % s.kernel;
    in_tile = index / s.kernel;
    out_tiles = smaller(kOutTiles, s.out_channels / kTile - out_tile);
    offsets = smaller(kOffsets, s.kernel - x);
  }

  int64_t in_tile;
  int64_t y;
  int64_t x;
  int64_t offsets;
  int64_t out_tile;
  int64_t out_tiles;
};

// Returns the offset of a tile of sums, in floats. The layout is [out tile][in
// tile][y][x], in tiles of 16 output by 16 input channels.
int64_t sums_at(
    const ConvolutionShape& s, int64_t o, int64_t in_tile, int64_t y, int64_t x) {
  return (((o * (s.in_channels / kTile) + in_tile) * s.kernel + y) * s.kernel + x) *
         kSums;
}

// Sums the products over one image's pixels, 32 pixels per iteration. Tile 6 is the
// gradient, tile 7 the image, and these are the sums:
//
//                  offset 0    1    2      The products go down, up and down these
//   out tile 0     tile   0    2    4      columns, so that six products need seven
//   out tile 1            1    3    5      loads.
//
// For a convolution from 32 to 64 channels and 26 x 26 pixels, a task reads 40 KiB of
// both copies of an image and 40 KiB of its gradient. L1 is too small for them, so they
// come from the L2 cache.
template <int Offsets, int OutTiles>
void multiply(
    const char* grad, const char* const (&pairs)[kOffsets], int64_t image_at,
    int64_t steps) {
  const int64_t next = steps * kTileBytes;
  for (int64_t at = 0; at < next; at += kTileBytes) {
    const char* a = grad + at;
    const int64_t b = image_at + at;
    _tile_loadd(6, a, kRowBytes);
    _tile_loadd(7, pairs[0] + b, kRowBytes);
    _tile_dpbf16ps(0, 6, 7);
    if constexpr (OutTiles == 2) {
      _tile_loadd(6, a + next, kRowBytes);
      _tile_dpbf16ps(1, 6, 7);
    }
    if constexpr (Offsets > 1) {
      _tile_loadd(7, pairs[1] + b, kRowBytes);
      if constexpr (OutTiles == 2) {
        _tile_dpbf16ps(3, 6, 7);
        _tile_loadd(6, a, kRowBytes);
      }
      _tile_dpbf16ps(2, 6, 7);
    }
    if constexpr (Offsets > 2) {
      _tile_loadd(7, pairs[2] + b, kRowBytes);
      _tile_dpbf16ps(4, 6, 7);
      if constexpr (OutTiles == 2) {
        _tile_loadd(6, a + next, kRowBytes);
        _tile_dpbf16ps(5, 6, 7);
      }
    }
  }
}

using Multiply =
    void (*)(const char*, const char* const (&)[kOffsets], int64_t, int64_t);

Multiply multiply_for(const Task& t) {
  static constexpr Multiply kKinds[kOffsets][kOutTiles] = {
      {&multiply<1, 1>, &multiply<1, 2>},
      {&multiply<2, 1>, &multiply<2, 2>},
      {&multiply<3, 1>, &multiply<3, 2>}};
  return kKinds[t.offsets - 1][t.out_tiles - 1];
}

void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
}

// Loads all six tiles of sums. For offsets and tiles that do not exist, `at` repeats
// the addresses of other tiles.
void load_sums(float* const (&at)[kOffsets][kOutTiles]) {
  _tile_loadd(0, at[0][0], kRowBytes);
  _tile_loadd(1, at[0][1], kRowBytes);
  _tile_loadd(2, at[1][0], kRowBytes);
  _tile_loadd(3, at[1][1], kRowBytes);
  _tile_loadd(4, at[2][0], kRowBytes);
  _tile_loadd(5, at[2][1], kRowBytes);
}

void store_sums(const Task& t, float* const (&at)[kOffsets][kOutTiles]) {
  _tile_stored(0, at[0][0], kRowBytes);
  if (t.out_tiles > 1) {
    _tile_stored(1, at[0][1], kRowBytes);
  }
  if (t.offsets > 1) {
    _tile_stored(2, at[1][0], kRowBytes);
    if (t.out_tiles > 1) {
      _tile_stored(3, at[1][1], kRowBytes);
    }
  }
  if (t.offsets > 2) {
    _tile_stored(4, at[2][0], kRowBytes);
    if (t.out_tiles > 1) {
      _tile_stored(5, at[2][1], kRowBytes);
    }
  }
}

}  // namespace

int64_t image_bytes(const ConvolutionShape& s) {
  return s.in_channels / kTile * 2 * Grid(s).pairs * kRowBytes;
}

int64_t grad_bytes(const ConvolutionShape& s) {
  return s.out_channels * Grid(s).pixels * 2;
}

// The layout is [tile of channels][even, odd][pair][channel][2], in rows of 64 bytes.
// Any 16 rows are a right factor. With a window of 3 x 3, an image of 26 x 26 pixels
// and 32 channels takes 88 KiB.
void lay_out_image(const ConvolutionShape& s, const Bf16* image, void* to) {
  const Grid grid(s);
  const int64_t next = grid.pairs * kRowBytes;
  Walk walk(image, s.in_channels, grid.width, s.padding, s.padding, s.height, s.width);
  const Bf16* pixels[kDepth + 1];
  pixels[kDepth] = walk.next();
  char* out = static_cast<char*>(to);
  for (int64_t p = 0; p < grid.pairs; p += kTile, out += kTileBytes) {
    pixels[0] = pixels[kDepth];
    for (int64_t i = 0; i < kDepth; ++i) {
      pixels[i + 1] = walk.next();
    }
    for (int64_t c = 0; c < s.in_channels; c += kTile) {
      char* even = out + c / kTile * 2 * next;
      pair_pixels(pixels, c, even, even + next);
    }
  }
}

// The layout is [tile of channels][step], in tiles of [channel][32 pixels]. With 64
// channels, the gradient of an image of 26 x 26 pixels takes 80 KiB.
void lay_out_grad(
    const ConvolutionShape& s, const Bf16* grad, void* to, float* bias_grad) {
  const Grid grid(s);
  const int64_t next = grid.pixels / kDepth * kTileBytes;
  Walk walk(grad, s.out_channels, grid.width, 0, 0, grid.out_height, grid.out_width);
  for (int64_t c = 0; c < s.out_channels; c += kTile) {
    _mm512_storeu_ps(bias_grad + c, _mm512_setzero_ps());
  }
  char* out = static_cast<char*>(to);
  for (int64_t p = 0; p < grid.pixels; p += kDepth, out += kTileBytes) {
    const Bf16* pixels[kDepth];
    for (auto& pixel : pixels) {
      pixel = walk.next();
    }
    for (int64_t c = 0; c < s.out_channels; c += kTile) {
      const __m512 sum = turn_pixels(pixels, c, out + c / kTile * next);
      _mm512_storeu_ps(
          bias_grad + c, _mm512_add_ps(_mm512_loadu_ps(bias_grad + c), sum));
    }
  }
}

int64_t num_tasks(const ConvolutionShape& s) {
  const int64_t out_groups = (s.out_channels / kTile + kOutTiles - 1) / kOutTiles;
  const int64_t x_groups = (s.kernel + kOffsets - 1) / kOffsets;
  return s.in_channels / kTile * s.kernel * x_groups * out_groups;
}

int64_t sums_bytes(const ConvolutionShape& s) {
  return s.in_channels * s.out_channels * s.kernel * s.kernel * 4;
}

void add_images(
    const ConvolutionShape& s, int64_t task, const void* images, const void* grads,
    int64_t count, bool first, void* sums) {
  const Grid grid(s);
  const Task t(s, task);
  const char* pairs[kOffsets];
  float* at[kOffsets][kOutTiles];
  for (int64_t i = 0; i < kOffsets; ++i) {
    const int64_t x = t.x + smaller(i, t.offsets - 1);
    const int64_t shift = t.y * grid.width + x;
    pairs[i] = static_cast<const char*>(images) +
               (t.in_tile * 2 + shift % 2) * grid.pairs * kRowBytes +
               shift / 2 * kRowBytes;
    for (int64_t o = 0; o < kOutTiles; ++o) {
      at[i][o] =
          static_cast<float*>(sums) +
          sums_at(s, t.out_tile + smaller(o, t.out_tiles - 1), t.in_tile, t.y, x);
    }
  }
  const int64_t steps = grid.pixels / kDepth;
  const char* grad = static_cast<const char*>(grads) + t.out_tile * steps * kTileBytes;
  const Multiply one = multiply_for(t);
  const TileScope tiles;
  if (first) {
    zero_sums();
  } else {
    load_sums(at);
  }
  for (int64_t i = 0; i < count; ++i) {
    one(grad + i * grad_bytes(s), pairs, i * image_bytes(s), steps);
  }
  store_sums(t, at);
}

void store_weight_grad(
    const ConvolutionShape& s, const void* sums, bool accumulate, float* to) {
  const int64_t window = s.kernel * s.kernel;
  const __m512i places = _mm512_mullo_epi32(
      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
      _mm512_set1_epi32(static_cast<int>(window)));
  const auto* from = static_cast<const float*>(sums);
  for (int64_t o = 0; o < s.out_channels; ++o) {
    for (int64_t c = 0; c < s.in_channels; c += kTile) {
      float* into = to + (o * s.in_channels + c) * window;
      const float* tile =
          from + sums_at(s, o / kTile, c / kTile, 0, 0) + o % kTile * kTile;
      for (int64_t w = 0; w < window; ++w) {
        __m512 value = _mm512_load_ps(tile + w * kSums);
        if (accumulate) {
          value = _mm512_add_ps(value, _mm512_i32gather_ps(places, into + w, 4));
        }
        _mm512_i32scatter_ps(into + w, places, value, 4);
      }
    }
  }
}

}  // namespace tandem::amx
