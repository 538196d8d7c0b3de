#include <algorithm>

#include "tandem/kernels/cuda/convolution.h"
#include "tandem/kernels/cuda/window_source.h"

// For the weights, the same matrices as forward's, turned round: a row for each tap of
// the window, its value at each position along k; a column for each channel of the
// output, its gradients along k. One row more, of ones, has the bias's gradient.

namespace tandem::cuda {

namespace {

constexpr int64_t kPositionsOfPart = 512;
constexpr int64_t kMostParts = 64;

// The tap of the row of ones: no position has this bit.
constexpr unsigned kOnes = 1u << 30;

// Of the weights' gradient.
Division divide_positions(const ConvolutionShape& shape) {
  const int64_t positions = shape.images * shape.out_height() * shape.out_width();
  const int64_t parts = std::min(
      kMostParts, int64_t{std::max(1u, blocks_of(positions, kPositionsOfPart))});
  const int64_t taps = shape.in_channels * shape.kernel * shape.kernel;
  const bool narrow = is_narrow(shape.out_channels);
  return divide(grid_of(taps + 1, shape.out_channels, narrow), positions, parts);
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
  ParameterGradients<T> gradients;
  TileGrid grid;
  Workspace<T> workspace;
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
  __device__ PositionSource(
      const WeightGradient<T>& problem, const TilePlace& place, Tap* taps)
      : problem_(problem), taps_(taps) {
    for (unsigned i = threadIdx.x; i < Tile::kRows; i += kTileThreads) {
      const unsigned row = place.row * Tile::kRows + i;
      taps[i] = static_cast<int>(row) == problem.window.taps()
                    ? Tap{0, kOnes}
                    : tap_of(problem.window, row);
    }
    range_ = range_of(place, problem.positions_of_part, problem.positions);
    first_column_ =
        static_cast<int>(place.column * Tile::kColumns + threadIdx.x / Tile::kWords);
  }

  __device__ void prepare(unsigned) {}

  __device__ unsigned stages() const {
    return Tile::stages(static_cast<int>(range_.end - range_.begin));
  }

  __device__ __forceinline__ void fetch(unsigned stage) {
    const unsigned first =
        range_.begin + stage * Tile::kDepth + threadIdx.x % Tile::kWords * kPerWord;
    int64_t places[kPerWord];
    TANDEM_UNROLL
    for (unsigned e = 0; e < kPerWord; ++e) {
      const bool exists = first + e < range_.end;
      const Position position = position_of(problem_.window, first + e, exists);
      fetch_rows(position, e);
      places[e] = exists ? place_of_gradient(position) : kNowhere;
    }
    fetch_columns(places);
  }

  __device__ __forceinline__ void store(Word* a, Word* b) const {
    const unsigned at =
        threadIdx.x / Tile::kWords * Tile::kStride + threadIdx.x % Tile::kWords;
    store_words<Arithmetic>(values_, a + at, kStep * Tile::kStride);
    store_words<Arithmetic>(gradients_, b + at, kStep * Tile::kStride);
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
    return (int64_t{position.image} * problem_.out_channels + first_column_) *
               problem_.window.positions() +
           position.in_output;
  }

  __device__ __forceinline__ void fetch_columns(const int64_t (&places)[kPerWord]) {
    const auto value_of = [&](const T* values, unsigned i) {
      const int next = static_cast<int>(i / kPerWord * kStep);
      const int64_t place = places[i % kPerWord];
      return place != kNowhere && first_column_ + next < problem_.out_channels
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
  KRange range_;
  int first_column_;
  T values_[kRows * kPerWord];
  T gradients_[kColumns * kPerWord];
};

template <typename Tile, typename T>
__device__ __forceinline__ void write_weights(
    const WeightGradient<T>& problem, const TilePlace& place, const Sums<T>& sums) {
  const ParameterGradients<T>& gradients = problem.gradients;
  const int taps = problem.rows - 1;
  for_each_row<Tile>(sums, [&](unsigned in_tile, const T(&of_row)[8]) {
    const auto row = static_cast<int>(place.row * Tile::kRows + in_tile);
    T* first = row < taps ? gradients.weight + row : gradients.bias;
    if (row > taps || first == nullptr) {
      return;
    }
    const int step = row < taps ? taps : 1;
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      const auto column =
          static_cast<int>(place.column * Tile::kColumns + column_of<Tile>(j));
      if (column < problem.out_channels) {
        T& to = first[int64_t{column} * step];
        to = gradients.accumulate ? to + of_row[j] : of_row[j];
      }
    }
  });
}

// What block number `block` of the weights' gradient does.
template <typename Tile, typename Arithmetic>
__device__ __forceinline__ void compute_weights(
    const WeightGradient<typename Arithmetic::Value>& problem, unsigned block) {
  const TilePlace place = place_in(problem.grid, block);
  auto* shared = dynamic_shared<typename Tile::Word>();
  PositionSource<Tile, Arithmetic> source(
      problem, place, reinterpret_cast<Tap*>(shared + 2 * Tile::kStageWords));
  Sums<typename Arithmetic::Value> sums = {};
  multiply_stages<Tile, Arithmetic>(source, source.stages(), shared, sums);
  if (add_parts(problem.grid, problem.workspace, place, sums)) {
    write_weights<Tile>(problem, place, sums);
  }
}

template <typename Tile, typename Arithmetic>
__device__ __forceinline__ void compute_data(
    const Convolution<typename Arithmetic::Value>& problem, unsigned block) {
  using T = typename Arithmetic::Value;
  const TilePlace place = place_in(problem.grid, block);
  Sums<T> sums = {};
  multiply_windows<Tile, Arithmetic>(problem, place, sums);
  write_images<Tile>(problem, place, sums, [](unsigned, T sum) { return sum; });
}

template <typename OfData, typename OfWeights, typename Arithmetic>
constexpr int blocks_for_both() {
  constexpr int kData = blocks_per_processor<OfData, Arithmetic>();
  constexpr int kWeights = blocks_per_processor<OfWeights, Arithmetic>();
  return kData < kWeights ? kData : kWeights;
}

// Blocks: those of the input's gradient, then those of the weights'.
template <typename OfData, typename OfWeights, typename Arithmetic>
__global__ void __launch_bounds__(
    kTileThreads, blocks_for_both<OfData, OfWeights, Arithmetic>())
    backward_kernel(
        Convolution<typename Arithmetic::Value> data,
        WeightGradient<typename Arithmetic::Value> weights) {
  const unsigned of_data = data.grid.blocks();
  if (blockIdx.x < of_data) {
    compute_data<OfData, Arithmetic>(data, blockIdx.x);
  } else {
    compute_weights<OfWeights, Arithmetic>(weights, blockIdx.x - of_data);
  }
}

template <typename T>
Convolution<T> data_of(
    const ConvolutionShape& shape, const T* grad_output, const T* output,
    const T* weight, T* grad_input) {
  Convolution<T> problem{};
  if (grad_input == nullptr) {
    return problem;
  }
  const Window forward = forward_window(shape);
  const auto area = static_cast<int>(forward.area.divisor);
  problem.window.channels = static_cast<int>(shape.out_channels);
  problem.window.height = forward.out_height;
  problem.window.width = forward.out_width;
  problem.window.kernel = forward.kernel;
  problem.window.area = forward.area;
  problem.window.padding = static_cast<int>(shape.kernel - 1 - shape.padding);
  problem.window.out_height = forward.height;
  problem.window.out_width = forward.width;
  problem.images = static_cast<int>(shape.images);
  problem.out_channels = forward.channels;
  problem.weight_channel = forward.channels * area;
  problem.weight_column = area;
  problem.turned = true;
  problem.input = grad_output;
  problem.relu_output = output;
  problem.weight = weight;
  problem.output = grad_input;
  problem.grid = grid_of(
      shape.images * problem.window.positions(), shape.in_channels,
      is_narrow(shape.in_channels));
  return problem;
}

template <typename T>
WeightGradient<T> weights_of(
    const ConvolutionShape& shape, const T* input, const T* grad_output,
    const T* output, const Workspace<T>& workspace,
    const ParameterGradients<T>& gradients) {
  WeightGradient<T> problem{};
  problem.window = forward_window(shape);
  const Division division = divide_positions(shape);
  problem.positions = static_cast<int>(shape.images * problem.window.positions());
  problem.positions_of_part = static_cast<int>(division.depth_of_part);
  problem.out_channels = static_cast<int>(shape.out_channels);
  problem.rows = problem.window.taps() + 1;
  problem.input = input;
  problem.grad_output = grad_output;
  problem.relu_output = output;
  problem.gradients = gradients;
  problem.grid = division.grid;
  problem.workspace = workspace;
  return problem;
}

}  // namespace

WorkspaceSize convolution_workspace(const ConvolutionShape& shape) {
  return divide_positions(shape).grid.workspace();
}

template <typename T>
void convolution_backward(
    const ConvolutionShape& shape, Products products, const T* input, const T* weight,
    const T* grad_output, const T* output, const Workspace<T>& workspace,
    const ParameterGradients<T>& gradients, T* grad_input, Stream stream) {
  check_convolution(shape);
  const auto data = data_of(shape, grad_output, output, weight, grad_input);
  const auto weights =
      weights_of(shape, input, grad_output, output, workspace, gradients);
  with_tile<T>(
      products, is_narrow(shape.out_channels), [&](auto tile, auto arithmetic) {
        using OfWeights = decltype(tile);
        using Arithmetic = decltype(arithmetic);
        with_sides<Arithmetic>(
            is_narrow(shape.in_channels), [&](auto tile_of_data, auto) {
              using OfData = decltype(tile_of_data);
              constexpr size_t kData =
                  OfData::kSharedBytes + WindowSource<OfData, Arithmetic>::kSharedBytes;
              constexpr size_t kWeights =
                  OfWeights::kSharedBytes +
                  PositionSource<OfWeights, Arithmetic>::kSharedBytes;
              launch_tiles<Arithmetic>(
                  "convolution_backward",
                  backward_kernel<OfData, OfWeights, Arithmetic>,
                  data.grid.blocks() + weights.grid.blocks(), std::max(kData, kWeights),
                  stream, data, weights);
            });
      });
}

template void convolution_backward(
    const ConvolutionShape&, Products, const float*, const float*, const float*,
    const float*, const Workspace<float>&, const ParameterGradients<float>&, float*,
    Stream);
template void convolution_backward(
    const ConvolutionShape&, Products, const double*, const double*, const double*,
    const double*, const Workspace<double>&, const ParameterGradients<double>&, double*,
    Stream);

}  // namespace tandem::cuda
