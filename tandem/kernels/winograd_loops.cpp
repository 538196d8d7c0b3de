// Compiled for AVX-512, AVX2 and NEON (lanes.h).

#include "tandem/kernels/winograd_loops.h"

#include "tandem/kernels/products.h"
#include "tandem/kernels/vectors.h"
#include "tandem/kernels/winograd_transforms.h"

namespace tandem::TANDEM_ISA {

namespace {

constexpr int64_t kPoints = 36;
// Number of tiles in a run, chosen so that the scratch memory and the weights fit into
// the L2 cache. CPUs with AVX-512 have 1 MiB or more. Other CPUs often have 512 KiB,
// such as EPYC before its fourth generation.
constexpr int64_t kRun = kLanes == 16 ? 48 : 24;

// First pixel of a tile's outputs.
struct Place {
  int64_t image;
  int64_t y;
  int64_t x;
};

Place place_of(const WinogradShape& s, int64_t tile) {
  const int64_t in_image = tile % s.tiles_per_image();
  return {
      tile / s.tiles_per_image(), in_image / s.tile_columns() * s.tile(),
      in_image % s.tile_columns() * s.tile()};
}

// Pixel outside the image.
alignas(64) constexpr float kOutside[kLanes] = {};

// Loads a square of kLanes channels of an image's block, with zeros outside the image.
template <int Size>
TANDEM_ALWAYS_INLINE void load_square(
    const float* plane, int64_t height, int64_t width, int64_t y, int64_t x,
    Floats (&square)[Size][Size]) {
  if (y >= 0 && x >= 0 && y + Size <= height && x + Size <= width) {
    for (int i = 0; i < Size; ++i) {
      if constexpr (kLanes == 8) {
        // Prefetches the next square. With AVX-512's wide vectors, a prefetch would not
        // be faster.
        const float* next = plane + ((y + i) * width + x + Size) * kBlock;
        __builtin_prefetch(next);
        __builtin_prefetch(next + 16);
      }
      for (int j = 0; j < Size; ++j) {
        square[i][j] = load(plane + ((y + i) * width + x + j) * kBlock);
      }
    }
    return;
  }
  for (int i = 0; i < Size; ++i) {
    const bool row = y + i >= 0 && y + i < height;
    for (int j = 0; j < Size; ++j) {
      const bool inside = row && x + j >= 0 && x + j < width;
      square[i][j] =
          load(inside ? plane + ((y + i) * width + x + j) * kBlock : kOutside);
    }
  }
}

// Returns the distance between two of the 36 matrices of kRun rows, in floats.
int64_t matrix_stride(int64_t channels) {
  return kRun * channels + 16;
}

// Functions that store or load a tile's 36 values, one value in each of the 36
// matrices.
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

// Images from which tiles are read, with a border of `padding` pixels.
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

// Returns the sum of the vectors of a row.
template <int Size>
TANDEM_ALWAYS_INLINE Floats add(const Floats (&row)[Size]) {
  if constexpr (Size == 2) {
    return row[0] + row[1];
  } else {
    return (row[0] + row[1]) + (row[2] + row[3]);
  }
}

// Returns the offset of a channel in its block, in floats.
TANDEM_ALWAYS_INLINE int64_t place_in_block(int64_t channel) {
  return kBlock == kLanes ? 0 : channel % kBlock;
}

// Transforms the tiles [first, first + count) to [36][tile][channel]. Adds the sum of
// each channel to `sums`, unless that is null.
template <typename T>
void read_tiles(
    const WinogradShape& s, const Images& images, int64_t first, int64_t count,
    float* to, float* sums) {
  const int64_t plane = images.height * images.width * kBlock;
  for (int64_t t = 0; t < count; ++t) {
    const Place at = place_of(s, first + t);
    for (int64_t c = 0; c < images.channels; c += kLanes) {
      Floats square[T::kFrom][T::kFrom];
      Floats done[6][6];
      load_square(
          images.data + (at.image * images.channels + c) / kBlock * plane +
              place_in_block(c),
          images.height, images.width, at.y - images.padding, at.x - images.padding,
          square);
      if (sums != nullptr) {
        Floats sum = load(sums + c);
        for (const auto& row : square) {
          sum += add(row);
        }
        store(sum, sums + c);
      }
      transform<T>(square, done);
      store_points(done, to + t * images.channels + c, matrix_stride(images.channels));
    }
  }
}

template <typename W>
void write_outputs(
    const WinogradShape& s, int64_t first, int64_t count, const float* from,
    const float* bias, bool relu, float* out) {
  const int64_t stride = matrix_stride(s.out_channels);
  const int64_t plane = s.out_height() * s.out_width() * kBlock;
  for (int64_t t = 0; t < count; ++t) {
    const Place at = place_of(s, first + t);
    const int64_t rows = s.out_height() - at.y;
    const int64_t columns = s.out_width() - at.x;
    for (int64_t c = 0; c < s.out_channels; c += kLanes) {
      Floats square[6][6];
      Floats done[W::kTile][W::kTile];
      load_points(from + t * s.out_channels + c, stride, square);
      transform<typename W::Output>(square, done);
      const Floats base = bias == nullptr ? Floats{} : load(bias + c);
      float* to = out + (at.image * s.out_channels + c) / kBlock * plane +
                  (at.y * s.out_width() + at.x) * kBlock + place_in_block(c);
      if constexpr (kLanes == 8) {
        // Prefetches the next tile's outputs.
        for (int i = 0; i < W::kTile; ++i) {
          float* next = to + (i * s.out_width() + W::kTile) * kBlock;
          __builtin_prefetch(next, 1);
          __builtin_prefetch(next + 16, 1);
        }
      }
      for (int i = 0; i < W::kTile; ++i) {
        for (int j = 0; j < W::kTile; ++j) {
          if (i < rows && j < columns) {
            const Floats value = done[i][j] + base;
            // Keeps NaN.
            store(
                relu ? (value <= 0 ? Floats{} : value) : value,
                to + (i * s.out_width() + j) * kBlock);
          }
        }
      }
    }
  }
}

int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

template <typename W>
void transform_weights(
    const WinogradShape& s, const float* weights, bool backward, float* transformed) {
  constexpr int64_t kTaps = W::kWindow * W::kWindow;
  // The lanes of a vector are neighbors in the last dimension of the result.
  const int64_t rows = backward ? s.out_channels : s.in_channels;
  const int64_t columns = backward ? s.in_channels : s.out_channels;
  const int64_t row_stride = backward ? s.in_channels * kTaps : kTaps;
  const int64_t column_stride = backward ? kTaps : s.in_channels * kTaps;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; column += kLanes) {
      const float* from = weights + row * row_stride + column * column_stride;
      Floats window[W::kWindow][W::kWindow];
      Floats done[6][6];
      for (int tap = 0; tap < kTaps; ++tap) {
        // The gradient needs the window rotated by 180 degrees.
        const int64_t read = backward ? kTaps - 1 - tap : tap;
        Floats values = {};
        for (int lane = 0; lane < kLanes; ++lane) {
          values[lane] = from[lane * column_stride + read];
        }
        window[tap / W::kWindow][tap % W::kWindow] = values;
      }
      transform<typename W::Weights>(window, done);
      store_points(done, transformed + row * columns + column, rows * columns);
    }
  }
}

template <typename W>
void convolve(
    const WinogradShape& s, int64_t first, int64_t last, const float* in,
    const float* transformed, const float* bias, bool relu, float* out,
    float* scratch) {
  const int64_t in_stride = matrix_stride(s.in_channels);
  const int64_t out_stride = matrix_stride(s.out_channels);
  float* inputs = scratch;
  float* products = scratch + kPoints * in_stride;
  for (int64_t tile = first; tile < last; tile += kRun) {
    const int64_t count = smaller(kRun, last - tile);
    read_tiles<InputTransform>(s, inputs_of(s, in), tile, count, inputs, nullptr);
    for (int64_t point = 0; point < kPoints; ++point) {
      const Factors factors = {
          inputs + point * in_stride,
          s.in_channels,
          1,
          transformed + point * s.in_channels * s.out_channels,
          s.out_channels,
          s.out_channels,
          s.out_channels,
          s.in_channels};
      multiply(factors, count, false, products + point * out_stride);
    }
    write_outputs<W>(s, tile, count, products, bias, relu, out);
  }
}

template <typename W>
void add_gradient(
    const WinogradShape& s, int64_t first, int64_t last, const float* in,
    const float* grad_output, float* sums, float* bias_sums, float* scratch) {
  const int64_t in_stride = matrix_stride(s.in_channels);
  const int64_t out_stride = matrix_stride(s.out_channels);
  float* inputs = scratch;
  float* grads = scratch + kPoints * in_stride;
  for (int64_t tile = first; tile < last; tile += kRun) {
    const int64_t count = smaller(kRun, last - tile);
    read_tiles<InputTransform>(s, inputs_of(s, in), tile, count, inputs, nullptr);
    read_tiles<typename W::Grad>(
        s, grads_of(s, grad_output), tile, count, grads, bias_sums);
    for (int64_t point = 0; point < kPoints; ++point) {
      const Factors factors = {
          inputs + point * in_stride,
          1,
          s.in_channels,
          grads + point * out_stride,
          s.out_channels,
          s.out_channels,
          s.out_channels,
          count};
      multiply(
          factors, s.in_channels, true, sums + point * s.in_channels * s.out_channels);
    }
  }
}

template <typename W>
void finish_gradient(
    const WinogradShape& s, const float* sums, bool accumulate, float* weights_grad) {
  constexpr int64_t kTaps = W::kWindow * W::kWindow;
  const int64_t stride = s.in_channels * kTaps;
  for (int64_t row = 0; row < s.in_channels; ++row) {
    for (int64_t column = 0; column < s.out_channels; column += kLanes) {
      Floats square[6][6];
      Floats window[W::kWindow][W::kWindow];
      load_points(
          sums + row * s.out_channels + column, s.in_channels * s.out_channels, square);
      transform<typename W::WeightsGrad>(square, window);
      float* to = weights_grad + column * stride + row * kTaps;
      for (int tap = 0; tap < kTaps; ++tap) {
        for (int lane = 0; lane < kLanes; ++lane) {
          float& value = to[lane * stride + tap];
          value = (accumulate ? value : 0) +
                  window[tap / W::kWindow][tap % W::kWindow][lane];
        }
      }
    }
  }
}

// The next four functions call the version for the size of the shape's windows.
template <typename... Arguments>
void weights_of(const WinogradShape& s, Arguments... arguments) {
  s.kernel == 3 ? transform_weights<Window3>(s, arguments...)
                : transform_weights<Window5>(s, arguments...);
}
template <typename... Arguments>
void convolve_of(const WinogradShape& s, Arguments... arguments) {
  s.kernel == 3 ? convolve<Window3>(s, arguments...)
                : convolve<Window5>(s, arguments...);
}
template <typename... Arguments>
void gradient_of(const WinogradShape& s, Arguments... arguments) {
  s.kernel == 3 ? add_gradient<Window3>(s, arguments...)
                : add_gradient<Window5>(s, arguments...);
}
template <typename... Arguments>
void finish_of(const WinogradShape& s, Arguments... arguments) {
  s.kernel == 3 ? finish_gradient<Window3>(s, arguments...)
                : finish_gradient<Window5>(s, arguments...);
}

}  // namespace

const WinogradKernels winograd = {kBlock,       kRun,         &weights_of,
                                  &convolve_of, &gradient_of, &finish_of};

}  // namespace tandem::TANDEM_ISA
