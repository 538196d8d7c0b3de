#include "tandem/kernels/cuda/clipping.h"

#include <cmath>

#include "tandem/kernels/cuda/device.h"
#include "tandem/kernels/cuda/reduce.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads) squares_kernel(
    int64_t count, const T* __restrict__ gradients, double* __restrict__ sums) {
  __shared__ double parts[kThreads / kWarpSize];
  const int64_t first = int64_t{blockIdx.x} * kSquaresTile + threadIdx.x;
  double own = 0;
  for (int64_t k = 0; k < kSquaresTile; k += kThreads) {
    if (first + k < count) {
      const auto value = static_cast<double>(gradients[first + k]);
      own += value * value;
    }
  }
  const double sum = block_sum(own, parts);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(int64_t count, const double* __restrict__ sums, double* squares) {
  __shared__ double parts[kThreads / kWarpSize];
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    own += sums[i];
  }
  const double sum = block_sum(own, parts);
  if (threadIdx.x == 0) {
    *squares += sum;
  }
}

__global__ void clip_kernel(double clip_norm, double* squares, StepScalars* scalars) {
  const double factor = clip_norm / (std::sqrt(*squares) + 1e-6);
  // A norm that is NaN changes nothing, as std::min has it.
  scalars->gradient_scale = factor < 1 ? factor : 1;
  *squares = 0;
}

}  // namespace

template <typename T>
void add_squares(
    int64_t count, const T* gradients, double* scratch, double* squares,
    Stream stream) {
  if (count > 0) {
    launch(
        "squares", squares_kernel<T>, blocks_of(count, kSquaresTile), kThreads, 0,
        stream, count, gradients, scratch);
    launch(
        "sum_of_squares", sum_kernel, 1, kThreads, 0, stream, square_sums(count),
        static_cast<const double*>(scratch), squares);
  }
}

void clip_gradients(
    double clip_norm, double* squares, StepScalars* scalars, Stream stream) {
  launch("clip", clip_kernel, 1, 1, 0, stream, clip_norm, squares, scalars);
}

template void add_squares(int64_t, const float*, double*, double*, Stream);
template void add_squares(int64_t, const double*, double*, double*, Stream);

}  // namespace tandem::cuda
