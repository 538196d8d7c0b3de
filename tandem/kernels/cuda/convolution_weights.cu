#include <algorithm>

#include "tandem/kernels/cuda/convolution.h"
#include "tandem/kernels/cuda/tile_dispatch.h"
#include "tandem/kernels/cuda/window.h"

// The same matrices as forward's, turned round: a row for each tap of the window, its
// value at each position along k; a column for each channel of the output, its
// gradients along k. One row more, of ones, has the bias's gradient.

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kPositionsOfPart = 512;
constexpr int64_t kMostParts = 64;
// Parts are whole stages.
constexpr int64_t kDeepestStage = 32;

// The tap of the row of ones: no position has this bit.
constexpr unsigned kOnes = 1u << 30;

struct Parts {
  int64_t count;
  // Of each; the last may have fewer.
  int64_t positions;
};

Parts parts_of(int64_t positions) {
  const int64_t wanted = std::min(
      kMostParts,
      std::max(int64_t{1}, (positions + kPositionsOfPart - 1) / kPositionsOfPart));
  const int64_t stages =
      (positions + wanted * kDeepestStage - 1) / (wanted * kDeepestStage);
  const int64_t each = std::max(int64_t{1}, stages) * kDeepestStage;
  return {std::max(int64_t{1}, (positions + each - 1) / each), each};
}

template <typename T>
struct WeightGradient {
  Window window;
  int positions;
  int positions_of_part;
  int out_channels;
  // Taps, and one for the bias.
  int rows;
  const T* input;
  const T* grad_output;
  const T* relu_output;
  // Parts x out_channels x rows.
  T* sums;
};

// A thread reads one word's positions, so that neighbouring threads read neighbouring
// positions, for every so-many'th row and column.
template <typename Tile, typename Arithmetic>
class PositionSource {
 public:
  using T = typename Arithmetic::Value;
  using Word = typename Arithmetic::Word;
  static constexpr unsigned kStep = kTileThreads / Tile::kWords;
  static constexpr unsigned kRows = Tile::kRows / kStep;
  static constexpr unsigned kColumns = Tile::kColumns / kStep;
  static constexpr unsigned kPerWord = Arithmetic::kPerWord;
  static constexpr unsigned kSharedBytes = Tile::kRows * sizeof(Tap);
  static constexpr int64_t kNowhere = -1;

  // All threads make one; a barrier follows before the first fetch().
  __device__ PositionSource(const WeightGradient<T>& problem, Tap* taps)
      : problem_(problem), taps_(taps) {
    for (unsigned i = threadIdx.x; i < Tile::kRows; i += kTileThreads) {
      const unsigned row = blockIdx.x * Tile::kRows + i;
      taps[i] = static_cast<int>(row) == problem.window.taps()
                    ? Tap{0, kOnes}
                    : tap_of(problem.window, row);
    }
    const auto each = static_cast<unsigned>(problem.positions_of_part);
    begin_ = blockIdx.z * each;
    const unsigned end = begin_ + each;
    const auto positions = static_cast<unsigned>(problem.positions);
    end_ = end < positions ? end : positions;
  }

  __device__ void prepare(unsigned) {}

  __device__ unsigned stages() const {
    return Tile::stages(static_cast<int>(end_ - begin_));
  }

  __device__ __forceinline__ void fetch(unsigned stage) {
    const unsigned first =
        begin_ + stage * Tile::kDepth + threadIdx.x % Tile::kWords * kPerWord;
    int64_t places[kPerWord];
    TANDEM_UNROLL
    for (unsigned e = 0; e < kPerWord; ++e) {
      const bool exists = first + e < end_;
      const Position position = position_of(problem_.window, first + e, exists);
      fetch_rows(position, e);
      places[e] = exists ? place_of_gradient(position) : kNowhere;
    }
    fetch_columns(places);
  }

  __device__ __forceinline__ void store(Word* a, Word* b) const {
    const unsigned at =
        threadIdx.x / Tile::kWords * Tile::kStride + threadIdx.x % Tile::kWords;
    TANDEM_UNROLL
    for (unsigned i = 0; i < kRows; ++i) {
      a[at + i * kStep * Tile::kStride] = Arithmetic::word(values_ + i * kPerWord);
    }
    TANDEM_UNROLL
    for (unsigned i = 0; i < kColumns; ++i) {
      b[at + i * kStep * Tile::kStride] = Arithmetic::word(gradients_ + i * kPerWord);
    }
  }

 private:
  __device__ __forceinline__ void fetch_rows(const Position& position, unsigned e) {
    const T* place = problem_.input +
                     int64_t{position.image} * problem_.window.elements() +
                     position.in_image;
    TANDEM_UNROLL
    for (unsigned i = 0; i < kRows; ++i) {
      const Tap tap = taps_[threadIdx.x / Tile::kWords + i * kStep];
      T value = tap.needs == kOnes ? T(1) : T(0);
      if (is_inside(position, tap)) {
        value = place[tap.offset];
      }
      values_[i * kPerWord + e] = value;
    }
  }

  // Of the thread's first column.
  __device__ __forceinline__ int64_t place_of_gradient(const Position& position) const {
    return (int64_t{position.image} * problem_.out_channels + first_column()) *
               problem_.window.positions() +
           position.in_output;
  }

  __device__ __forceinline__ int first_column() const {
    return static_cast<int>(blockIdx.y * Tile::kColumns + threadIdx.x / Tile::kWords);
  }

  __device__ __forceinline__ void fetch_columns(const int64_t (&places)[kPerWord]) {
    const auto value_of = [&](const T* values, unsigned i) {
      const int next = static_cast<int>(i / kPerWord * kStep);
      const int64_t place = places[i % kPerWord];
      return place != kNowhere && first_column() + next < problem_.out_channels
                 ? values[place + int64_t{next} * problem_.window.positions()]
                 : T(0);
    };
    TANDEM_UNROLL
    for (unsigned i = 0; i < kColumns * kPerWord; ++i) {
      gradients_[i] = value_of(problem_.grad_output, i);
    }
    if (problem_.relu_output != nullptr) {
      close_gates(
          gradients_, [&](unsigned i) { return value_of(problem_.relu_output, i); });
    }
  }

  const WeightGradient<T>& problem_;
  const Tap* taps_;
  unsigned begin_;
  unsigned end_;
  T values_[kRows * kPerWord];
  T gradients_[kColumns * kPerWord];
};

// Blocks: tiles of taps x tiles of output channels x parts of the positions.
template <typename Tile, typename Arithmetic>
__global__ void __launch_bounds__(
    kTileThreads, blocks_per_processor<Tile, Arithmetic>())
    weights_kernel(WeightGradient<typename Arithmetic::Value> problem) {
  using T = typename Arithmetic::Value;
  auto* shared = dynamic_shared<typename Tile::Word>();
  PositionSource<Tile, Arithmetic> source(
      problem, reinterpret_cast<Tap*>(shared + 2 * Tile::kStageWords));
  Sums<T> sums = {};
  multiply_stages<Tile, Arithmetic>(source, source.stages(), shared, sums);
  for_each_row<Tile>(sums, [&](unsigned in_tile, const T(&of_row)[8]) {
    const auto row = static_cast<int>(blockIdx.x * Tile::kRows + in_tile);
    if (row >= problem.rows) {
      return;
    }
    T* out = problem.sums + int64_t{blockIdx.z} * problem.out_channels * problem.rows;
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      const auto column =
          static_cast<int>(blockIdx.y * Tile::kColumns + column_of<Tile>(j));
      if (column < problem.out_channels) {
        out[int64_t{column} * problem.rows + row] = of_row[j];
      }
    }
  });
}

// A thread adds up the parts of one gradient.
template <typename T>
__global__ void __launch_bounds__(kThreads) add_parts_kernel(
    int64_t parts, int64_t out_channels, int64_t taps, const T* __restrict__ sums,
    bool accumulate, T* __restrict__ grad_weight, T* __restrict__ grad_bias) {
  const int64_t rows = taps + 1;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= out_channels * rows) {
    return;
  }
  T sum = 0;
  for (int64_t part = 0; part < parts; ++part) {
    sum += sums[part * out_channels * rows + i];
  }
  const int64_t channel = i / rows;
  const int64_t tap = i % rows;
  T* gradient = tap < taps             ? grad_weight + channel * taps + tap
                : grad_bias != nullptr ? grad_bias + channel
                                       : nullptr;
  if (gradient != nullptr) {
    *gradient = accumulate ? *gradient + sum : sum;
  }
}

}  // namespace

int64_t convolution_workspace(const ConvolutionShape& shape) {
  const int64_t positions = shape.images * shape.out_height() * shape.out_width();
  return parts_of(positions).count * shape.out_channels *
         (shape.in_channels * shape.kernel * shape.kernel + 1);
}

template <typename T>
void convolution_backward_weights(
    const ConvolutionShape& shape, Products products, const T* input,
    const T* grad_output, const T* output, bool accumulate, T* workspace,
    T* grad_weight, T* grad_bias, Stream stream) {
  check_convolution(shape);
  WeightGradient<T> problem{};
  problem.window = forward_window(shape);
  const int64_t positions = shape.images * problem.window.positions();
  const Parts parts = parts_of(positions);
  problem.positions = static_cast<int>(positions);
  problem.positions_of_part = static_cast<int>(parts.positions);
  problem.out_channels = static_cast<int>(shape.out_channels);
  problem.rows = problem.window.taps() + 1;
  problem.input = input;
  problem.grad_output = grad_output;
  problem.relu_output = output;
  problem.sums = workspace;
  with_tile<T>(products, shape.out_channels, [&](auto tile, auto arithmetic) {
    using Tile = decltype(tile);
    using Arithmetic = decltype(arithmetic);
    launch_tiles<Arithmetic>(
        "convolution_weights", weights_kernel<Tile, Arithmetic>,
        {blocks_of(problem.rows, Tile::kRows),
         blocks_of(shape.out_channels, Tile::kColumns),
         static_cast<unsigned>(parts.count)},
        Tile::kSharedBytes + PositionSource<Tile, Arithmetic>::kSharedBytes, stream,
        problem);
  });
  launch(
      "convolution_parts", add_parts_kernel<T>,
      blocks_of(shape.out_channels * problem.rows, kThreads), kThreads, 0, stream,
      parts.count, shape.out_channels, int64_t{problem.window.taps()},
      static_cast<const T*>(workspace), accumulate, grad_weight, grad_bias);
}

template void convolution_backward_weights(
    const ConvolutionShape&, Products, const float*, const float*, const float*, bool,
    float*, float*, float*, Stream);
template void convolution_backward_weights(
    const ConvolutionShape&, Products, const double*, const double*, const double*,
    bool, double*, double*, double*, Stream);

}  // namespace tandem::cuda
