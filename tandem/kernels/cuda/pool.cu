#include "tandem/kernels/cuda/pool.h"

#include <limits>
#include <string>

#include "tandem/kernels/cuda/dropout_block.h"
#include "tandem/kernels/cuda/largest.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;

// Images that are read.
struct Images {
  uint32_t height;
  uint32_t width;
};

template <typename T>
struct Pool {
  DropoutDecisions decisions;
  T scale;
  bool relu;
  Images images;
  int64_t input_values;
  const T* in;
  // Null forward.
  const T* grad_out;
  T* out;
};

// One output's window: where it begins in its image, and where it would end with the
// last odd row and column.
struct PoolWindow {
  uint32_t first;
  uint32_t rows;
  uint32_t columns;
};

__device__ __forceinline__ PoolWindow window_of(const Images& images, int64_t element) {
  const uint32_t height = images.height / 2;
  const uint32_t width = images.width / 2;
  const auto at = static_cast<uint32_t>(element);
  const uint32_t row = at / width % height;
  const uint32_t column = at % width;
  return {
      (at / width / height * images.height + 2 * row) * images.width + 2 * column,
      row + 1 == height ? images.height - 2 * row : 2,
      column + 1 == width ? images.width - 2 * column : 2};
}

template <typename T>
__device__ __forceinline__ Largest<T> largest_of_window(
    const T* values, uint32_t width) {
  Largest<T> largest{values[0], 0};
  for (unsigned i = 1; i < 4; ++i) {
    largest = largest_of(largest, Largest<T>{values[i / 2 * width + i % 2], i});
  }
  return largest;
}

// `number`: of the value whose gradient it is; of none, kNoneOfWindow.
template <typename T>
__device__ __forceinline__ void write_gradients(
    const PoolWindow& window, uint32_t width, uint32_t number, T gradient, T* grad_in) {
  for (uint32_t row = 0; row < window.rows; ++row) {
    for (uint32_t column = 0; column < window.columns; ++column) {
      const bool is_largest = row < 2 && column < 2 && 2 * row + column == number;
      grad_in[row * width + column] = is_largest ? gradient : T(0);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) pool_kernel(Pool<T> pool) {
  for_dropout_block(
      pool.decisions, int64_t{blockIdx.x} * kThreads + threadIdx.x,
      [&](int64_t sample, int64_t element, bool is_kept) {
        const PoolWindow window = window_of(pool.images, element);
        const int64_t first = sample * pool.input_values + window.first;
        const auto largest = largest_of_window(pool.in + first, pool.images.width);
        const T factor = is_kept ? pool.scale : T(0);
        const int64_t at = sample * pool.decisions.elements + element;
        if (pool.grad_out == nullptr) {
          pool.out[at] =
              (pool.relu && largest.value < 0 ? T(0) : largest.value) * factor;
        } else {
          const T gradient = pool.grad_out[at] * factor;
          const bool is_lost = pool.relu && largest.value <= 0;
          write_gradients(
              window, pool.images.width, largest.number, is_lost ? T(0) : gradient,
              pool.out + first);
        }
      });
}

// A thread for each output.
template <typename T>
__global__ void __launch_bounds__(kThreads) spread_kernel(
    Images images, int64_t outputs, int64_t outputs_of_image, int64_t input_values,
    const uint8_t* __restrict__ largest, T scale, const T* __restrict__ grad_out,
    T* __restrict__ grad_in) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= outputs) {
    return;
  }
  const PoolWindow window = window_of(images, at % outputs_of_image);
  const int64_t first = at / outputs_of_image * input_values + window.first;
  write_gradients(
      window, images.width, largest[at], grad_out[at] * scale, grad_in + first);
}

Images images_of(const PoolShape& shape) {
  check_pool(shape);
  return {static_cast<uint32_t>(shape.height), static_cast<uint32_t>(shape.width)};
}

template <typename T>
void launch_pool(
    const char* name, const PoolShape& shape, const ReluAndDropout& behind, const T* in,
    const T* grad_out, T* out, Stream stream) {
  const Images images = images_of(shape);
  const DropoutDecisions decisions{
      behind.place, behind.layer, shape.images, shape.outputs(),
      dropout_threshold(behind.p)};
  const Pool<T> pool{
      decisions,
      static_cast<T>(behind.scale()),
      behind.relu,
      images,
      shape.channels * shape.height * shape.width,
      in,
      grad_out,
      out};
  if (decisions.threads() > 0) {
    launch(
        name, pool_kernel<T>, blocks_of(decisions.threads(), kThreads), kThreads, 0,
        stream, pool);
  }
}

}  // namespace

void check_pool(const PoolShape& shape) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (shape.height < 2 || shape.width < 2 || shape.height > kMost / shape.width ||
      shape.channels > kMost / (shape.height * shape.width)) {
    throw ConfigError(
        "[cuda] a pool of 2x2 over images of " + std::to_string(shape.channels) + "x" +
        std::to_string(shape.height) + "x" + std::to_string(shape.width) +
        " is not possible here; they are to be 2x2 at least, with fewer than 2^31 "
        "values; choose another --model");
  }
}

template <typename T>
void max_pool(
    const PoolShape& shape, const ReluAndDropout& behind, const T* in, T* out,
    Stream stream) {
  launch_pool<T>("max_pool", shape, behind, in, nullptr, out, stream);
}

template <typename T>
void max_pool_backward(
    const PoolShape& shape, const ReluAndDropout& behind, const T* in,
    const T* grad_out, T* grad_in, Stream stream) {
  launch_pool("max_pool_backward", shape, behind, in, grad_out, grad_in, stream);
}

template <typename T>
void max_pool_backward(
    const PoolShape& shape, const uint8_t* largest, double scale, const T* grad_out,
    T* grad_in, Stream stream) {
  const Images images = images_of(shape);
  const int64_t outputs = shape.images * shape.outputs();
  if (outputs > 0) {
    launch(
        "max_pool_spread", spread_kernel<T>, blocks_of(outputs, kThreads), kThreads, 0,
        stream, images, outputs, shape.outputs(),
        shape.channels * shape.height * shape.width, largest, static_cast<T>(scale),
        grad_out, grad_in);
  }
}

template void max_pool(
    const PoolShape&, const ReluAndDropout&, const float*, float*, Stream);
template void max_pool(
    const PoolShape&, const ReluAndDropout&, const double*, double*, Stream);
template void max_pool_backward(
    const PoolShape&, const ReluAndDropout&, const float*, const float*, float*,
    Stream);
template void max_pool_backward(
    const PoolShape&, const ReluAndDropout&, const double*, const double*, double*,
    Stream);
template void max_pool_backward(
    const PoolShape&, const uint8_t*, double, const float*, float*, Stream);
template void max_pool_backward(
    const PoolShape&, const uint8_t*, double, const double*, double*, Stream);

}  // namespace tandem::cuda
