#include "tandem/kernels/cuda/convolution.h"

#include <string>

#include "tandem/kernels/cuda/tile_dispatch.h"
#include "tandem/kernels/cuda/window.h"

// A product of matrices that nobody stores: a row for each position of the output, its
// window's values along k; a column for each channel of the output, its weights along
// k. See convolution.h for the registers that this takes.

namespace tandem::cuda {

namespace {

// Forward, and backward for the data.
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
  bool relu;
  const T* input;
  // Of the ReLU behind what `input` is the gradient of; or null.
  const T* relu_output;
  const T* weight;
  const T* bias;
  T* output;

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

  __device__ WindowSource(const Convolution<T>& problem, WeightedTap* taps)
      : problem_(problem), taps_(taps) {
    const unsigned at = blockIdx.x * Tile::kRows + threadIdx.x % Tile::kRows;
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
            blockIdx.y * Tile::kColumns + threadIdx.x / Tile::kWords + i * kColumnStep);
        weights_[i * kPerWord + e] =
            exists && column < problem_.out_channels
                ? problem_.weight[own[e].weight + column * problem_.weight_column]
                : T(0);
      }
    }
  }

  __device__ __forceinline__ void store(Word* a, Word* b) const {
    constexpr unsigned kInVector = kVectorBytes / sizeof(Word);
    a += threadIdx.x % Tile::kRows * Tile::kStride +
         threadIdx.x / Tile::kRows * kValues / kPerWord;
    TANDEM_UNROLL
    for (unsigned i = 0; i < kValues / kPerWord; i += kInVector) {
      Vector<Word> vector;
      TANDEM_UNROLL
      for (unsigned w = 0; w < kInVector; ++w) {
        vector.words[w] = Arithmetic::word(window_ + (i + w) * kPerWord);
      }
      *reinterpret_cast<Vector<Word>*>(a + i) = vector;
    }
    b += threadIdx.x / Tile::kWords * Tile::kStride + threadIdx.x % Tile::kWords;
    TANDEM_UNROLL
    for (unsigned i = 0; i < kColumns; ++i) {
      b[i * kColumnStep * Tile::kStride] = Arithmetic::word(weights_ + i * kPerWord);
    }
  }

 private:
  const Convolution<T>& problem_;
  WeightedTap* taps_;
  Position position_;
  int64_t place_;
  T window_[kValues];
  T weights_[kColumns * kPerWord];
};

template <typename Tile, typename T>
__device__ __forceinline__ void write_output(
    const Convolution<T>& problem, const Sums<T>& sums) {
  T bias[8];
  int column[8];
  TANDEM_UNROLL
  for (unsigned j = 0; j < 8; ++j) {
    column[j] = static_cast<int>(blockIdx.y * Tile::kColumns + column_of<Tile>(j));
    bias[j] = problem.bias != nullptr && column[j] < problem.out_channels
                  ? problem.bias[column[j]]
                  : T(0);
  }
  const auto positions = static_cast<unsigned>(problem.window.positions());
  for_each_row<Tile>(sums, [&](unsigned row, const T(&of_row)[8]) {
    const unsigned at = blockIdx.x * Tile::kRows + row;
    const unsigned image = at / positions;
    if (image >= static_cast<unsigned>(problem.images)) {
      return;
    }
    T* output = problem.output +
                int64_t{image} * problem.out_channels * problem.window.positions() +
                at % positions;
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      if (column[j] < problem.out_channels) {
        const T value = of_row[j] + bias[j];
        output[int64_t{column[j]} * problem.window.positions()] =
            problem.relu && value < 0 ? T(0) : value;
      }
    }
  });
}

// Blocks: tiles of positions x tiles of output channels.
template <typename Tile, typename Arithmetic>
__global__ void __launch_bounds__(
    kTileThreads, blocks_per_processor<Tile, Arithmetic>())
    convolution_kernel(Convolution<typename Arithmetic::Value> problem) {
  using T = typename Arithmetic::Value;
  auto* shared = dynamic_shared<typename Tile::Word>();
  WindowSource<Tile, Arithmetic> source(
      problem, reinterpret_cast<WeightedTap*>(shared + 2 * Tile::kStageWords));
  Sums<T> sums = {};
  multiply_stages<Tile, Arithmetic>(
      source, Tile::stages(problem.window.taps()), shared, sums);
  write_output<Tile>(problem, sums);
}

template <typename T>
void launch_convolution(
    const char* name, Products products, const Convolution<T>& problem, Stream stream) {
  const int64_t positions = int64_t{problem.images} * problem.window.positions();
  if (positions == 0 || problem.out_channels == 0) {
    return;
  }
  with_tile<T>(products, problem.out_channels, [&](auto tile, auto arithmetic) {
    using Tile = decltype(tile);
    using Arithmetic = decltype(arithmetic);
    launch_tiles<Arithmetic>(
        name, convolution_kernel<Tile, Arithmetic>,
        {blocks_of(positions, Tile::kRows),
         blocks_of(problem.out_channels, Tile::kColumns)},
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
  check_convolution(shape);
  Convolution<T> problem{};
  problem.window = forward_window(shape);
  problem.images = static_cast<int>(shape.images);
  problem.out_channels = static_cast<int>(shape.out_channels);
  problem.weight_channel = static_cast<int>(problem.window.area.divisor);
  problem.weight_column = problem.window.taps();
  problem.relu = relu;
  problem.input = input;
  problem.weight = weight;
  problem.bias = bias;
  problem.output = output;
  launch_convolution("convolution", products, problem, stream);
}

template <typename T>
void convolution_backward_data(
    const ConvolutionShape& shape, Products products, const T* grad_output,
    const T* output, const T* weight, T* grad_input, Stream stream) {
  check_convolution(shape);
  const Window forward = forward_window(shape);
  const auto area = static_cast<int>(forward.area.divisor);
  Convolution<T> problem{};
  problem.window = {
      static_cast<int>(shape.out_channels),
      forward.out_height,
      forward.out_width,
      forward.kernel,
      forward.area,
      static_cast<int>(shape.kernel - 1 - shape.padding),
      forward.height,
      forward.width};
  problem.images = static_cast<int>(shape.images);
  problem.out_channels = forward.channels;
  problem.weight_channel = forward.channels * area;
  problem.weight_column = area;
  problem.turned = true;
  problem.input = grad_output;
  problem.relu_output = output;
  problem.weight = weight;
  problem.output = grad_input;
  launch_convolution("convolution_data", products, problem, stream);
}

template void convolution(
    const ConvolutionShape&, Products, const float*, const float*, const float*, bool,
    float*, Stream);
template void convolution(
    const ConvolutionShape&, Products, const double*, const double*, const double*,
    bool, double*, Stream);
template void convolution_backward_data(
    const ConvolutionShape&, Products, const float*, const float*, const float*, float*,
    Stream);
template void convolution_backward_data(
    const ConvolutionShape&, Products, const double*, const double*, const double*,
    double*, Stream);

}  // namespace tandem::cuda
