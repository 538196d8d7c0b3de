#include "tandem/kernels/cuda/update_tile.h"

namespace tandem::cuda {

namespace {

template <typename T>
__global__ void __launch_bounds__(kUpdateThreads) sgd_kernel(
    int64_t count, T* __restrict__ param, const T* __restrict__ grad,
    T* __restrict__ buffer, SgdSettings settings, GroupConstants group,
    const StepScalars* scalars) {
  if (scalars->left_out != 0) {
    return;
  }
  const auto factors = factors_of<T>(settings, context_of(*scalars, group));
  if (buffer == nullptr) {
    for_each_of_tile(
        count, [&](int64_t i) { sgd_element(grad[i], param[i], factors); });
  } else {
    for_each_of_tile(
        count, [&](int64_t i) { sgd_element(grad[i], param[i], buffer[i], factors); });
  }
}

}  // namespace

template <typename T>
void update_sgd(
    int64_t count, T* param, const T* grad, T* momentum_buffer,
    const SgdSettings& settings, const GroupConstants& group,
    const StepScalars* scalars, Stream stream) {
  launch_update(
      "sgd", sgd_kernel<T>, count, stream, param, grad, momentum_buffer, settings,
      group, scalars);
}

template void update_sgd(
    int64_t, float*, const float*, float*, const SgdSettings&, const GroupConstants&,
    const StepScalars*, Stream);
template void update_sgd(
    int64_t, double*, const double*, double*, const SgdSettings&, const GroupConstants&,
    const StepScalars*, Stream);

}  // namespace tandem::cuda
