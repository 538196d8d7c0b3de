#pragma once

#include "tandem/kernels/cuda/convolution.h"
#include "tandem/kernels/cuda/device.h"

namespace tandem::cuda {

/// Divides numbers below 2^32 / divisor by one that is not known to the compiler, by a
/// multiplication: GPUs have no instruction for it.
struct Divisor {
  uint32_t divisor;
  // 2^32 / divisor, rounded up.
  uint64_t factor;

  __device__ uint32_t quotient(uint32_t of) const {
    return static_cast<uint32_t>(of * factor >> 32);
  }
};

inline Divisor divisor_of(int64_t number) {
  const auto divisor = static_cast<uint32_t>(number);
  return {divisor, ((uint64_t{1} << 32) + divisor - 1) / divisor};
}

/// Images of which a convolution reads a window around each position of its output.
struct Window {
  int channels;
  int height;
  int width;
  Divisor kernel;
  // kernel x kernel.
  Divisor area;
  // Below 0: so many rows and columns at the edges are not read.
  int padding;
  int out_height;
  int out_width;
  // Positions are numbered by the windows of a pool of 2 x 2: four in a row are those
  // of one window, and a last odd row or column has none.
  bool by_pool = false;

  // How many values each position reads, and how many positions an image has.
  __host__ __device__ int taps() const {
    return channels * static_cast<int>(area.divisor);
  }
  __host__ __device__ int positions() const {
    return by_pool ? (out_height / 2) * (out_width / 2) * 4 : out_height * out_width;
  }
  __host__ __device__ int elements() const {
    return channels * height * width;
  }
};

/// One of the values in a position's window.
struct Tap {
  // From the position's place in the image.
  int offset;
  // Bits that a position has where this tap is inside of the image.
  unsigned needs;
};

/// No position has this bit.
constexpr unsigned kNever = 1u << 31;

/// Tap number `k` of a window: its channel, row and column are digits of k.
__device__ __forceinline__ Tap tap_of(const Window& window, unsigned k) {
  const unsigned channel = window.area.quotient(k);
  const unsigned in_area = k - channel * window.area.divisor;
  const unsigned row = window.kernel.quotient(in_area);
  const unsigned column = in_area - row * window.kernel.divisor;
  if (channel >= static_cast<unsigned>(window.channels)) {
    return {0, kNever};
  }
  const int first_row = static_cast<int>(channel) * window.height - window.padding;
  return {
      (first_row + static_cast<int>(row)) * window.width + static_cast<int>(column) -
          window.padding,
      1u << row | 0x100u << column};
}

/// A position of the output: where it is in its image, and which rows (bits 0 to 7) and
/// columns (bits 8 to 15) of its window are inside.
struct Position {
  int image;
  // Its number in the image, and where it is in one channel of what is read.
  int in_output;
  int in_image;
  unsigned has;
};

/// Bits i, below 8, with first <= i < end.
__device__ __forceinline__ unsigned bits_between(int first, int end) {
  const int from = first < 0 ? 0 : first > 8 ? 8 : first;
  const int to = end < from ? from : end > 8 ? 8 : end;
  return (1u << to) - (1u << from);
}

/// Position number `at` of all images; has nothing unless `exists`.
__device__ __forceinline__ Position
position_of(const Window& window, unsigned at, bool exists) {
  const auto positions = static_cast<unsigned>(window.positions());
  const auto width = static_cast<unsigned>(window.out_width);
  const unsigned in_output = at % positions;
  unsigned number = in_output;
  if (window.by_pool) {
    const unsigned windows = width / 2;
    number = (in_output / 4 / windows * 2 + in_output % 4 / 2) * width +
             in_output / 4 % windows * 2 + in_output % 2;
  }
  const auto row = static_cast<int>(number / width);
  const auto column = static_cast<int>(number % width);
  const unsigned rows =
      bits_between(window.padding - row, window.height + window.padding - row);
  const unsigned columns =
      bits_between(window.padding - column, window.width + window.padding - column);
  return {
      static_cast<int>(at / positions), static_cast<int>(in_output),
      row * window.width + column, exists ? rows | columns << 8 : 0};
}

__device__ __forceinline__ bool is_inside(const Position& position, const Tap& tap) {
  return (tap.needs & ~position.has) == 0;
}

inline Window forward_window(const ConvolutionShape& shape) {
  return {static_cast<int>(shape.in_channels),     static_cast<int>(shape.height),
          static_cast<int>(shape.width),           divisor_of(shape.kernel),
          divisor_of(shape.kernel * shape.kernel), static_cast<int>(shape.padding),
          static_cast<int>(shape.out_height()),    static_cast<int>(shape.out_width())};
}

}  // namespace tandem::cuda
