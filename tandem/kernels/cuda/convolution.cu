#include "tandem/kernels/cuda/convolution.h"

#include <string>

#include "tandem/kernels/cuda/dropout_block.h"
#include "tandem/kernels/cuda/largest.h"
#include "tandem/kernels/cuda/pool.h"
#include "tandem/kernels/cuda/window_source.h"

namespace tandem::cuda {

namespace {

// What a pool behind a convolution is computed with; positions are numbered by its
// windows.
template <typename T>
struct PoolBehind {
  // Of a sample's pool outputs.
  DropoutDecisions dropout;
  T scale;
  // Null without a pool.
  T* output;
  // Or null.
  uint8_t* largest;
};

template <typename T>
struct Forward {
  Convolution<T> convolution;
  // Or null.
  const T* bias;
  bool relu;
  PoolBehind<T> pool;
};

// Four lanes have the values of one window, of the eight channels in a row of a tile's
// sums: lane / 4 % 4 is the place in the window. Each gets the largest of two channels,
// numbers `place` and 4 + `place`: first the two lanes of each row of the window
// exchange half of what they have, then the rows do.
template <typename T>
__device__ __forceinline__ void find_largest(
    const T (&values)[8], Largest<T> (&largest)[2]) {
  const unsigned place = threadIdx.x / 4 % 4;
  const bool right = place % 2 == 1;
  const bool lower = place / 2 == 1;
  Largest<T> of_rows[4];
  TANDEM_UNROLL
  for (unsigned j = 0; j < 4; ++j) {
    const Largest<T> own{right ? values[2 * j + 1] : values[2 * j], place};
    const Largest<T> other{
        __shfl_xor_sync(kAllLanes, right ? values[2 * j] : values[2 * j + 1], 4),
        place ^ 1};
    of_rows[j] = right ? largest_of(other, own) : largest_of(own, other);
  }
  TANDEM_UNROLL
  for (unsigned j = 0; j < 2; ++j) {
    const Largest<T> own = lower ? of_rows[2 * j + 1] : of_rows[2 * j];
    const Largest<T> given = lower ? of_rows[2 * j] : of_rows[2 * j + 1];
    const Largest<T> other{
        __shfl_xor_sync(kAllLanes, given.value, 8),
        __shfl_xor_sync(kAllLanes, given.number, 8)};
    largest[j] = lower ? largest_of(other, own) : largest_of(own, other);
  }
}

// One value of the pool behind image `image`; `window` of its channel.
template <typename T>
__device__ __forceinline__ void write_window(
    const Forward<T>& problem, unsigned image, unsigned window, int column,
    const Largest<T>& largest) {
  const PoolBehind<T>& pool = problem.pool;
  const int64_t element =
      int64_t{column} * (problem.convolution.window.positions() / 4) + window;
  const bool is_kept_here = is_kept(pool.dropout, image, element);
  const T value = problem.relu && largest.value < 0 ? T(0) : largest.value;
  const int64_t at = image * pool.dropout.elements + element;
  pool.output[at] = value * (is_kept_here ? pool.scale : T(0));
  if (pool.largest != nullptr) {
    const bool is_lost = !is_kept_here || (problem.relu && largest.value <= 0);
    pool.largest[at] = static_cast<uint8_t>(is_lost ? kNoneOfWindow : largest.number);
  }
}

template <typename Tile, typename T>
__device__ __forceinline__ void write_pool(
    const Forward<T>& problem, const TilePlace& place, const T (&bias)[8],
    const Sums<T>& sums) {
  const Convolution<T>& convolution = problem.convolution;
  const auto windows = static_cast<unsigned>(convolution.window.positions()) / 4;
  for_each_row<Tile>(sums, [&](unsigned row, const T(&of_row)[8]) {
    T values[8];
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      values[j] = of_row[j] + bias[j];
    }
    Largest<T> largest[2];
    find_largest(values, largest);
    const unsigned at = (place.row * Tile::kRows + row) / 4;
    const unsigned image = at / windows;
    TANDEM_UNROLL
    for (unsigned j = 0; j < 2; ++j) {
      const auto column = static_cast<int>(
          place.column * Tile::kColumns + column_of<Tile>(4 * j + threadIdx.x / 4 % 4));
      if (column < convolution.out_channels &&
          image < static_cast<unsigned>(convolution.images)) {
        write_window(problem, image, at % windows, column, largest[j]);
      }
    }
  });
}

template <typename Tile, typename Arithmetic>
__global__ void __launch_bounds__(
    kTileThreads, blocks_per_processor<Tile, Arithmetic>())
    convolution_kernel(Forward<typename Arithmetic::Value> problem) {
  using T = typename Arithmetic::Value;
  const Convolution<T>& convolution = problem.convolution;
  const TilePlace place = place_in(convolution.grid, blockIdx.x);
  Sums<T> sums = {};
  multiply_windows<Tile, Arithmetic>(convolution, place, sums);
  T bias[8];
  TANDEM_UNROLL
  for (unsigned j = 0; j < 8; ++j) {
    const auto column =
        static_cast<int>(place.column * Tile::kColumns + column_of<Tile>(j));
    bias[j] = problem.bias != nullptr && column < convolution.out_channels
                  ? problem.bias[column]
                  : T(0);
  }
  if (problem.pool.output != nullptr) {
    write_pool<Tile>(problem, place, bias, sums);
    return;
  }
  write_images<Tile>(convolution, place, sums, [&](unsigned j, T sum) {
    const T value = sum + bias[j];
    return problem.relu && value < 0 ? T(0) : value;
  });
}

template <typename T>
Forward<T> forward_of(
    const ConvolutionShape& shape, const T* input, const T* weight, const T* bias) {
  check_convolution(shape);
  Forward<T> problem{};
  Convolution<T>& convolution = problem.convolution;
  convolution.window = forward_window(shape);
  convolution.images = static_cast<int>(shape.images);
  convolution.out_channels = static_cast<int>(shape.out_channels);
  convolution.weight_channel = static_cast<int>(convolution.window.area.divisor);
  convolution.weight_column = convolution.window.taps();
  convolution.input = input;
  convolution.weight = weight;
  problem.bias = bias;
  return problem;
}

template <typename T>
void launch_forward(
    const char* name, Products products, Forward<T> problem, Stream stream) {
  Convolution<T>& convolution = problem.convolution;
  const bool narrow = is_narrow(convolution.out_channels);
  convolution.grid = grid_of(
      int64_t{convolution.images} * convolution.window.positions(),
      convolution.out_channels, narrow);
  if (convolution.grid.blocks() == 0) {
    return;
  }
  with_tile<T>(products, narrow, [&](auto tile, auto arithmetic) {
    using Tile = decltype(tile);
    using Arithmetic = decltype(arithmetic);
    launch_tiles<Arithmetic>(
        name, convolution_kernel<Tile, Arithmetic>, convolution.grid.blocks(),
        Tile::kSharedBytes + WindowSource<Tile, Arithmetic>::kSharedBytes, stream,
        problem);
  });
}

}  // namespace

void check_convolution(const ConvolutionShape& s) {
  const bool is_known = s.kernel >= 1 && s.kernel <= 5 && s.padding >= 0 &&
                        s.padding <= 2 && s.images >= 0 && s.in_channels >= 1 &&
                        s.out_channels >= 1;
  // What Divisor divides is below 2^25.
  constexpr int64_t kTimesTaps = 64;
  // Padding makes either side larger, but no more than by these.
  const bool fits = is_known && s.height >= 1 && s.width >= 1 && s.out_height() >= 1 &&
                    s.out_width() >= 1 && is_small(s.height + 4, s.width + 4) &&
                    is_small(s.images, s.height + 4, s.width + 4) &&
                    is_small(s.in_channels, s.height + 4, s.width + 4) &&
                    is_small(s.out_channels, s.height + 4, s.width + 4) &&
                    is_small(s.in_channels, s.out_channels, s.kernel, s.kernel) &&
                    is_small(s.in_channels, s.kernel, s.kernel, kTimesTaps) &&
                    is_small(s.out_channels, s.kernel, s.kernel, kTimesTaps);
  if (!fits) {
    throw ConfigError(
        "[cuda] a convolution of " + std::to_string(s.images) + " images of " +
        std::to_string(s.in_channels) + "x" + std::to_string(s.height) + "x" +
        std::to_string(s.width) + " into " + std::to_string(s.out_channels) +
        " channels with a kernel of " + std::to_string(s.kernel) +
        " and a padding of " + std::to_string(s.padding) +
        " is not possible here; kernels are 1 to 5, paddings 0 to 2, positions, an "
        "image's values and weights fewer than 2^31, a channel's weights fewer than "
        "2^25; change the model or --batch-size");
  }
}

template <typename T>
void convolution(
    const ConvolutionShape& shape, Products products, const T* input, const T* weight,
    const T* bias, bool relu, T* output, Stream stream) {
  auto problem = forward_of(shape, input, weight, bias);
  problem.relu = relu;
  problem.convolution.output = output;
  launch_forward("convolution", products, problem, stream);
}

template <typename T>
void convolution_and_pool(
    const ConvolutionShape& shape, Products products, const T* input, const T* weight,
    const T* bias, const ReluAndDropout& behind, T* output, uint8_t* largest,
    Stream stream) {
  auto problem = forward_of(shape, input, weight, bias);
  problem.convolution.window.by_pool = true;
  problem.relu = behind.relu;
  const PoolShape pool{
      shape.images, shape.out_channels, shape.out_height(), shape.out_width()};
  check_pool(pool);
  problem.pool = {
      {behind.place, behind.layer, shape.images, pool.outputs(),
       dropout_threshold(behind.p)},
      static_cast<T>(behind.scale()),
      output,
      largest};
  launch_forward("convolution_and_pool", products, problem, stream);
}

template void convolution(
    const ConvolutionShape&, Products, const float*, const float*, const float*, bool,
    float*, Stream);
template void convolution(
    const ConvolutionShape&, Products, const double*, const double*, const double*,
    bool, double*, Stream);
template void convolution_and_pool(
    const ConvolutionShape&, Products, const float*, const float*, const float*,
    const ReluAndDropout&, float*, uint8_t*, Stream);
template void convolution_and_pool(
    const ConvolutionShape&, Products, const double*, const double*, const double*,
    const ReluAndDropout&, double*, uint8_t*, Stream);

}  // namespace tandem::cuda
