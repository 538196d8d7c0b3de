// Compiled for AVX-512 only, see lanes.h.

#include "tandem/kernels/winograd_loops.h"

#include <immintrin.h>

#include "tandem/kernels/winograd_products.h"
#include "tandem/kernels/winograd_transforms.h"
#include "tandem/kernels/winograd_vectors.h"

namespace tandem::TANDEM_ISA {

namespace {

constexpr int64_t kPoints = 36;
constexpr int64_t kRun = kWinogradTiles;

// The pixel of the output where a tile begins.
struct Place {
  int64_t image;
  int64_t y;
  int64_t x;
};

Place place_of(const WinogradShape& s, int64_t tile) {
  const int64_t in_image = tile % s.tiles_per_image();
  return {
      tile / s.tiles_per_image(), in_image / s.tile_columns() * 4,
      in_image % s.tile_columns() * 4};
}

// Loads a square of an image's block of channels; zeros where it leaves the image.
template <int Size>
TANDEM_ALWAYS_INLINE void load_square(
    const float* plane, int64_t height, int64_t width, int64_t y, int64_t x,
    Floats (&square)[Size][Size]) {
  if (y >= 0 && x >= 0 && y + Size <= height && x + Size <= width) {
    for (int i = 0; i < Size; ++i) {
      for (int j = 0; j < Size; ++j) {
        square[i][j] = load(plane + ((y + i) * width + x + j) * kLanes);
      }
    }
    return;
  }
  for (int i = 0; i < Size; ++i) {
    const bool row = y + i >= 0 && y + i < height;
    for (int j = 0; j < Size; ++j) {
      const bool inside = row && x + j >= 0 && x + j < width;
      const auto mask = static_cast<__mmask16>(inside ? 0xFFFF : 0);
      square[i][j] =
          _mm512_maskz_loadu_ps(mask, plane + ((y + i) * width + x + j) * kLanes);
    }
  }
}

// The distance from one of the 36 matrices, of kRun rows, to the next.
int64_t matrix_stride(int64_t channels) {
  return kRun * channels + kLanes;
}

// Store and load a tile's 36 values, one in each matrix.
TANDEM_ALWAYS_INLINE void store_points(
    const Floats (&square)[6][6], float* to, int64_t stride) {
  for (const auto& row : square) {
    for (int x = 0; x < 6; ++x, to += stride) {
      store(row[x], to);
    }
  }
}
TANDEM_ALWAYS_INLINE void load_points(
    const float* from, int64_t stride, Floats (&square)[6][6]) {
  for (auto& row : square) {
    for (int x = 0; x < 6; ++x, from += stride) {
      row[x] = load(from);
    }
  }
}

// The images that tiles are cut from. Around them lies `padding`.
struct Images {
  const float* data;
  int64_t channels;
  int64_t height;
  int64_t width;
  int64_t padding;
};

Images inputs_of(const WinogradShape& s, const float* in) {
  return {in, s.in_channels, s.height, s.width, s.padding};
}
Images grads_of(const WinogradShape& s, const float* grad) {
  return {grad, s.out_channels, s.out_height(), s.out_width(), 0};
}

// Transforms the tiles [first, first + count) to [36][tile][channel]. Where `sums` is
// not null it also adds up each channel there.
template <typename T>
void take_tiles(
    const WinogradShape& s, const Images& images, int64_t first, int64_t count,
    float* to, float* sums) {
  const int64_t plane = images.height * images.width * kLanes;
  for (int64_t t = 0; t < count; ++t) {
    const Place at = place_of(s, first + t);
    for (int64_t c = 0; c < images.channels; c += kLanes) {
      Floats square[T::kFrom][T::kFrom];
      Floats done[6][6];
      load_square(
          images.data + (at.image * images.channels + c) / kLanes * plane,
          images.height, images.width, at.y - images.padding, at.x - images.padding,
          square);
      if (sums != nullptr) {
        Floats sum = load(sums + c);
        for (const auto& row : square) {
          sum += (row[0] + row[1]) + (row[2] + row[3]);
        }
        store(sum, sums + c);
      }
      transform<T>(square, done);
      store_points(done, to + t * images.channels + c, matrix_stride(images.channels));
    }
  }
}

void give_outputs(
    const WinogradShape& s, int64_t first, int64_t count, const float* from,
    const float* bias, bool relu, float* out) {
  const int64_t stride = matrix_stride(s.out_channels);
  const int64_t plane = s.out_height() * s.out_width() * kLanes;
  for (int64_t t = 0; t < count; ++t) {
    const Place at = place_of(s, first + t);
    const int64_t rows = s.out_height() - at.y;
    const int64_t columns = s.out_width() - at.x;
    for (int64_t c = 0; c < s.out_channels; c += kLanes) {
      Floats square[6][6];
      Floats done[4][4];
      load_points(from + t * s.out_channels + c, stride, square);
      transform<OutputTransform>(square, done);
      const Floats base = bias == nullptr ? Floats{} : load(bias + c);
      float* to = out + (at.image * s.out_channels + c) / kLanes * plane +
                  (at.y * s.out_width() + at.x) * kLanes;
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          if (i < rows && j < columns) {
            const Floats value = done[i][j] + base;
            // NaN stays.
            store(
                relu ? (value <= 0 ? Floats{} : value) : value,
                to + (i * s.out_width() + j) * kLanes);
          }
        }
      }
    }
  }
}

int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

}  // namespace

void winograd_weights(
    int64_t in_channels, int64_t out_channels, const float* weights, bool backward,
    float* transformed) {
  // The lanes of a vector are neighbours in the last dimension of the result.
  const int64_t rows = backward ? out_channels : in_channels;
  const int64_t columns = backward ? in_channels : out_channels;
  const int64_t row_stride = backward ? in_channels * 9 : 9;
  const int64_t column_stride = backward ? 9 : in_channels * 9;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; column += kLanes) {
      const float* from = weights + row * row_stride + column * column_stride;
      Floats window[3][3];
      Floats done[6][6];
      for (int tap = 0; tap < 9; ++tap) {
        // A gradient meets the window turned by half a turn.
        const int read = backward ? 8 - tap : tap;
        for (int lane = 0; lane < kLanes; ++lane) {
          window[tap / 3][tap % 3][lane] = from[lane * column_stride + read];
        }
      }
      transform<WeightsTransform>(window, done);
      store_points(done, transformed + row * columns + column, rows * columns);
    }
  }
}

void winograd_convolve(
    const WinogradShape& s, int64_t first, int64_t last, const float* in,
    const float* transformed, const float* bias, bool relu, float* out,
    float* scratch) {
  const int64_t in_stride = matrix_stride(s.in_channels);
  const int64_t out_stride = matrix_stride(s.out_channels);
  float* inputs = scratch;
  float* products = scratch + kPoints * in_stride;
  for (int64_t tile = first; tile < last; tile += kRun) {
    const int64_t count = smaller(kRun, last - tile);
    take_tiles<InputTransform>(s, inputs_of(s, in), tile, count, inputs, nullptr);
    for (int64_t point = 0; point < kPoints; ++point) {
      const Factors factors = {
          inputs + point * in_stride,
          s.in_channels,
          1,
          transformed + point * s.in_channels * s.out_channels,
          s.out_channels,
          s.in_channels};
      multiply(factors, count, false, products + point * out_stride);
    }
    give_outputs(s, tile, count, products, bias, relu, out);
  }
}

void winograd_gradient(
    const WinogradShape& s, int64_t first, int64_t last, const float* in,
    const float* grad_output, float* sums, float* bias_sums, float* scratch) {
  const int64_t in_stride = matrix_stride(s.in_channels);
  const int64_t out_stride = matrix_stride(s.out_channels);
  float* inputs = scratch;
  float* grads = scratch + kPoints * in_stride;
  for (int64_t tile = first; tile < last; tile += kRun) {
    const int64_t count = smaller(kRun, last - tile);
    take_tiles<InputTransform>(s, inputs_of(s, in), tile, count, inputs, nullptr);
    take_tiles<GradTransform>(
        s, grads_of(s, grad_output), tile, count, grads, bias_sums);
    for (int64_t point = 0; point < kPoints; ++point) {
      const Factors factors = {
          inputs + point * in_stride,
          1,
          s.in_channels,
          grads + point * out_stride,
          s.out_channels,
          count};
      multiply(
          factors, s.in_channels, true, sums + point * s.in_channels * s.out_channels);
    }
  }
}

void winograd_finish(
    int64_t in_channels, int64_t out_channels, const float* sums, bool accumulate,
    float* weights_grad) {
  const int64_t stride = in_channels * 9;
  for (int64_t row = 0; row < in_channels; ++row) {
    for (int64_t column = 0; column < out_channels; column += kLanes) {
      Floats square[6][6];
      Floats window[3][3];
      load_points(
          sums + row * out_channels + column, in_channels * out_channels, square);
      transform<WeightsGradTransform>(square, window);
      float* to = weights_grad + column * stride + row * 9;
      for (int tap = 0; tap < 9; ++tap) {
        for (int lane = 0; lane < kLanes; ++lane) {
          float& value = to[lane * stride + tap];
          value = (accumulate ? value : 0) + window[tap / 3][tap % 3][lane];
        }
      }
    }
  }
}

}  // namespace tandem::TANDEM_ISA
