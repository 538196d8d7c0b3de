#include "tandem/kernels/cuda/update_tile.h"

namespace tandem::cuda {

namespace {

template <bool amsgrad, typename T>
__global__ void __launch_bounds__(kUpdateThreads) adam_kernel(
    int64_t count, T* __restrict__ param, const T* __restrict__ grad,
    T* __restrict__ exp_avg, T* __restrict__ exp_avg_sq, T* __restrict__ maximum,
    AdamSettings settings, GroupConstants group, const StepScalars* scalars) {
  if (scalars->left_out != 0) {
    return;
  }
  __shared__ AdamFactors<T> factors;
  if (threadIdx.x == 0) {
    factors = factors_of<T>(settings, context_of(*scalars, group));
  }
  __syncthreads();
  for_each_of_tile(count, [&](int64_t i) {
    adam_element<amsgrad>(
        grad[i], param[i], exp_avg[i], exp_avg_sq[i], amsgrad ? maximum + i : nullptr,
        factors);
  });
}

}  // namespace

template <typename T>
void update_adam(
    int64_t count, T* param, const T* grad, T* exp_avg, T* exp_avg_sq,
    T* max_exp_avg_sq, const AdamSettings& settings, const GroupConstants& group,
    const StepScalars* scalars, Stream stream) {
  const auto kernel =
      max_exp_avg_sq == nullptr ? adam_kernel<false, T> : adam_kernel<true, T>;
  launch_update(
      "adam", kernel, count, stream, param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq,
      settings, group, scalars);
}

template void update_adam(
    int64_t, float*, const float*, float*, float*, float*, const AdamSettings&,
    const GroupConstants&, const StepScalars*, Stream);
template void update_adam(
    int64_t, double*, const double*, double*, double*, double*, const AdamSettings&,
    const GroupConstants&, const StepScalars*, Stream);

}  // namespace tandem::cuda
