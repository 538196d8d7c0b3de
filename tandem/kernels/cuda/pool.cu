#include "tandem/kernels/cuda/pool.h"

#include <limits>
#include <string>

#include "tandem/kernels/cuda/dropout_block.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;

template <typename T>
struct Pool {
  DropoutDecisions decisions;
  T scale;
  bool relu;
  uint32_t height;
  uint32_t width;
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

template <typename T>
__device__ __forceinline__ PoolWindow window_of(const Pool<T>& pool, int64_t element) {
  const uint32_t height = pool.height / 2;
  const uint32_t width = pool.width / 2;
  const auto at = static_cast<uint32_t>(element);
  const uint32_t row = at / width % height;
  const uint32_t column = at % width;
  return {
      (at / width / height * pool.height + 2 * row) * pool.width + 2 * column,
      row + 1 == height ? pool.height - 2 * row : 2,
      column + 1 == width ? pool.width - 2 * column : 2};
}

// The first of the largest of a window; the last NaN, where there is one.
template <typename T>
struct Largest {
  T value;
  uint32_t row = 0;
  uint32_t column = 0;

  __device__ Largest(const T* values, uint32_t width) : value(values[0]) {
    for (uint32_t i = 1; i < 4; ++i) {
      const T other = values[i / 2 * width + i % 2];
      if (other > value || other != other) {
        value = other;
        row = i / 2;
        column = i % 2;
      }
    }
  }
};

template <typename T>
__device__ __forceinline__ void write_gradients(
    const Pool<T>& pool, const PoolWindow& window, const Largest<T>& largest,
    T gradient, T* grad_in) {
  for (uint32_t row = 0; row < window.rows; ++row) {
    for (uint32_t column = 0; column < window.columns; ++column) {
      const bool is_largest = row == largest.row && column == largest.column;
      grad_in[row * pool.width + column] = is_largest ? gradient : T(0);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) pool_kernel(Pool<T> pool) {
  for_dropout_block(
      pool.decisions, int64_t{blockIdx.x} * kThreads + threadIdx.x,
      [&](int64_t sample, int64_t element, bool is_kept) {
        const PoolWindow window = window_of(pool, element);
        const int64_t first = sample * pool.input_values + window.first;
        const Largest<T> largest(pool.in + first, pool.width);
        const T factor = is_kept ? pool.scale : T(0);
        const int64_t at = sample * pool.decisions.elements + element;
        if (pool.grad_out == nullptr) {
          pool.out[at] =
              (pool.relu && largest.value < 0 ? T(0) : largest.value) * factor;
        } else {
          const T gradient = pool.grad_out[at] * factor;
          const bool is_lost = pool.relu && largest.value <= 0;
          write_gradients(
              pool, window, largest, is_lost ? T(0) : gradient, pool.out + first);
        }
      });
}

template <typename T>
void launch_pool(
    const char* name, const PoolShape& shape, const ReluAndDropout& behind, const T* in,
    const T* grad_out, T* out, Stream stream) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (shape.height < 2 || shape.width < 2 || shape.height > kMost / shape.width ||
      shape.channels > kMost / (shape.height * shape.width)) {
    throw ConfigError(
        "[cuda] a pool of 2x2 over images of " + std::to_string(shape.channels) + "x" +
        std::to_string(shape.height) + "x" + std::to_string(shape.width) +
        " is not possible here; they are to be 2x2 at least, with fewer than 2^31 "
        "values; choose another --model");
  }
  const DropoutDecisions decisions{
      behind.place, behind.layer, shape.images, shape.outputs(),
      dropout_threshold(behind.p)};
  const Pool<T> pool{
      decisions,
      static_cast<T>(behind.scale()),
      behind.relu,
      static_cast<uint32_t>(shape.height),
      static_cast<uint32_t>(shape.width),
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

}  // namespace tandem::cuda
