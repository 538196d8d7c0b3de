#pragma once

#include "tandem/kernels/cuda/tile_dispatch.h"
#include "tandem/kernels/cuda/window.h"

// A convolution as a product of matrices that nobody stores: a row for each position of
// the output, its window's values along k; a column for each channel of the output, its
// weights along k. Forward, and backward for the data, which is a convolution of the
// output's gradient with the weights turned round.

namespace tandem::cuda {

template <typename T>
struct Convolution {
  Window window;
  int images;
  int out_channels;
  // Of weights: how far apart those of neighbouring window channels and of neighbouring
  // output channels are, and whether a kernel's are read from its end.
  int weight_channel;
  int weight_column;
  bool turned;
  const T* input;
  // Of the ReLU behind what `input` is the gradient of; or null.
  const T* relu_output;
  const T* weight;
  T* output;
  TileGrid grid;

  __device__ int weight_of(unsigned k) const {
    const unsigned channel = window.area.quotient(k);
    const unsigned in_area = k - channel * window.area.divisor;
    return static_cast<int>(channel) * weight_channel +
           static_cast<int>(turned ? window.area.divisor - 1 - in_area : in_area);
  }
};

struct WeightedTap {
  Tap tap;
  int weight;
};

// A thread reads one position's window for one part of k, so that neighbouring threads
// read neighbouring positions; and for one word of k the weights of every so-many'th
// output channel.
template <typename Tile, typename Arithmetic>
class WindowSource {
 public:
  using T = typename Arithmetic::Value;
  using Word = typename Arithmetic::Word;
  static constexpr unsigned kParts = kTileThreads / Tile::kRows;
  static constexpr unsigned kValues = Tile::kDepth / kParts;
  static constexpr unsigned kColumnStep = kTileThreads / Tile::kWords;
  static constexpr unsigned kColumns = Tile::kColumns / kColumnStep;
  static constexpr unsigned kPerWord = Arithmetic::kPerWord;
  static constexpr unsigned kSharedBytes = 2 * Tile::kDepth * sizeof(WeightedTap);

  __device__ WindowSource(
      const Convolution<T>& problem, const TilePlace& place, WeightedTap* taps)
      : problem_(problem), taps_(taps), first_column_(place.column * Tile::kColumns) {
    const unsigned at = place.row * Tile::kRows + threadIdx.x % Tile::kRows;
    const unsigned positions = static_cast<unsigned>(problem.images) *
                               static_cast<unsigned>(problem.window.positions());
    position_ = position_of(problem.window, at, at < positions);
    place_ = int64_t{position_.image} * problem.window.elements() + position_.in_image;
  }

  __device__ void prepare(unsigned stage) {
    if (threadIdx.x < Tile::kDepth) {
      const unsigned k = stage * Tile::kDepth + threadIdx.x;
      const Tap tap = tap_of(problem_.window, k);
      taps_[stage % 2 * Tile::kDepth + threadIdx.x] = {
          tap, tap.needs == kNever ? 0 : problem_.weight_of(k)};
    }
  }

  __device__ __forceinline__ void fetch(unsigned stage) {
    const WeightedTap* taps = taps_ + stage % 2 * Tile::kDepth;
    const WeightedTap* own = taps + threadIdx.x / Tile::kRows * kValues;
    TANDEM_UNROLL
    for (unsigned i = 0; i < kValues; ++i) {
      const Tap tap = own[i].tap;
      window_[i] =
          is_inside(position_, tap) ? problem_.input[place_ + tap.offset] : T(0);
    }
    if (problem_.relu_output != nullptr) {
      close_gates(window_, [&](unsigned i) {
        const Tap tap = own[i].tap;
        return is_inside(position_, tap) ? problem_.relu_output[place_ + tap.offset]
                                         : T(0);
      });
    }
    own = taps + threadIdx.x % Tile::kWords * kPerWord;
    TANDEM_UNROLL
    for (unsigned e = 0; e < kPerWord; ++e) {
      const bool exists = own[e].tap.needs != kNever;
      TANDEM_UNROLL
      for (unsigned i = 0; i < kColumns; ++i) {
        const auto column = static_cast<int>(
            first_column_ + threadIdx.x / Tile::kWords + i * kColumnStep);
        weights_[i * kPerWord + e] =
            exists && column < problem_.out_channels
                ? problem_.weight[own[e].weight + column * problem_.weight_column]
                : T(0);
      }
    }
  }

  __device__ __forceinline__ void store(Word* a, Word* b) const {
    a += threadIdx.x % Tile::kRows * Tile::kStride +
         threadIdx.x / Tile::kRows * kValues / kPerWord;
    store_vectors<Arithmetic>(window_, a);
    b += threadIdx.x / Tile::kWords * Tile::kStride + threadIdx.x % Tile::kWords;
    store_words<Arithmetic>(weights_, b, kColumnStep * Tile::kStride);
  }

 private:
  const Convolution<T>& problem_;
  WeightedTap* taps_;
  unsigned first_column_;
  Position position_;
  int64_t place_;
  T window_[kValues];
  T weights_[kColumns * kPerWord];
};

/// The sums of a tile of positions and output channels.
template <typename Tile, typename Arithmetic>
__device__ __forceinline__ void multiply_windows(
    const Convolution<typename Arithmetic::Value>& problem, const TilePlace& place,
    Sums<typename Arithmetic::Value>& sums) {
  auto* shared = dynamic_shared<typename Tile::Word>();
  WindowSource<Tile, Arithmetic> source(
      problem, place, reinterpret_cast<WeightedTap*>(shared + 2 * Tile::kStageWords));
  multiply_stages<Tile, Arithmetic>(
      source, Tile::stages(problem.window.taps()), shared, sums);
}

/// Writes finished(j, sum) for each of the tile's sums; j: its column's number in a
/// row, as of column_of().
template <typename Tile, typename T, typename Finished>
__device__ __forceinline__ void write_images(
    const Convolution<T>& problem, const TilePlace& place, const Sums<T>& sums,
    Finished&& finished) {
  const auto positions = static_cast<unsigned>(problem.window.positions());
  for_each_row<Tile>(sums, [&](unsigned row, const T(&of_row)[8]) {
    const unsigned at = place.row * Tile::kRows + row;
    const unsigned image = at / positions;
    if (image >= static_cast<unsigned>(problem.images)) {
      return;
    }
    T* output = problem.output +
                int64_t{image} * problem.out_channels * problem.window.positions() +
                at % positions;
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      const auto column =
          static_cast<int>(place.column * Tile::kColumns + column_of<Tile>(j));
      if (column < problem.out_channels) {
        output[int64_t{column} * problem.window.positions()] = finished(j, of_row[j]);
      }
    }
  });
}

}  // namespace tandem::cuda
