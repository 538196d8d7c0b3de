#include "tandem/kernels/cuda/update_tile.h"

namespace tandem::cuda {

namespace {

template <typename T>
__global__ void __launch_bounds__(kUpdateThreads) adadelta_kernel(
    int64_t count, T* __restrict__ param, const T* __restrict__ grad,
    T* __restrict__ square_avg, T* __restrict__ acc_delta, AdadeltaSettings settings,
    GroupConstants group, const StepScalars* scalars) {
  if (scalars->left_out != 0) {
    return;
  }
  const auto factors = factors_of<T>(settings, context_of(*scalars, group));
  for_each_of_tile(count, [&](int64_t i) {
    adadelta_element(grad[i], param[i], square_avg[i], acc_delta[i], factors);
  });
}

}  // namespace

template <typename T>
void update_adadelta(
    int64_t count, T* param, const T* grad, T* square_avg, T* acc_delta,
    const AdadeltaSettings& settings, const GroupConstants& group,
    const StepScalars* scalars, Stream stream) {
  launch_update(
      "adadelta", adadelta_kernel<T>, count, stream, param, grad, square_avg, acc_delta,
      settings, group, scalars);
}

template void update_adadelta(
    int64_t, float*, const float*, float*, float*, const AdadeltaSettings&,
    const GroupConstants&, const StepScalars*, Stream);
template void update_adadelta(
    int64_t, double*, const double*, double*, double*, const AdadeltaSettings&,
    const GroupConstants&, const StepScalars*, Stream);

}  // namespace tandem::cuda
