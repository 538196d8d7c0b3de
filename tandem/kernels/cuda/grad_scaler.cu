#include "tandem/kernels/cuda/grad_scaler.h"

#include <cmath>

#include "tandem/kernels/cuda/device.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads) unscale_kernel(
    int64_t count, T* __restrict__ gradients, const float* scale, int64_t* overflowed) {
  const auto factor = static_cast<T>(1.0 / *scale);
  const int64_t first = int64_t{blockIdx.x} * kUnscaleTile + threadIdx.x;
  bool finite = true;
  for (int64_t k = 0; k < kUnscaleTile; k += kThreads) {
    if (first + k < count) {
      const T value = gradients[first + k];
      finite = finite && std::isfinite(value);
      gradients[first + k] = value * factor;
    }
  }
  if (!finite) {
    // All that write it write the same.
    *overflowed = 1;
  }
}

__global__ void scaler_kernel(
    LossScaleRule rule, ScalerState state, StepScalars* scalars) {
  const bool finite = *state.overflowed == 0;
  *state.overflowed = 0;
  end_scaled_step(
      rule, finite, *state.scale, *state.growth_tracker, *state.skipped_steps,
      *scalars);
}

}  // namespace

template <typename T>
void unscale(int64_t count, T* gradients, const ScalerState& state, Stream stream) {
  if (count > 0) {
    launch(
        "unscale", unscale_kernel<T>, blocks_of(count, kUnscaleTile), kThreads, 0,
        stream, count, gradients, state.scale, state.overflowed);
  }
}

void update_scaler(
    const LossScaleRule& rule, const ScalerState& state, StepScalars* scalars,
    Stream stream) {
  launch("update_scaler", scaler_kernel, 1, 1, 0, stream, rule, state, scalars);
}

template void unscale(int64_t, float*, const ScalerState&, Stream);
template void unscale(int64_t, double*, const ScalerState&, Stream);

}  // namespace tandem::cuda
