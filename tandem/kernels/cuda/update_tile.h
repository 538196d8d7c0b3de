#pragma once

#include "tandem/kernels/cuda/device.h"
#include "tandem/kernels/cuda/update.h"

namespace tandem::cuda {

/// What the kernels of optimizers share: threads of a block, and how they go through
/// its tile. Neighbouring threads take neighbouring elements.
constexpr unsigned kUpdateThreads = 256;

template <typename Body>
__device__ __forceinline__ void for_each_of_tile(int64_t count, Body&& body) {
  const int64_t first = int64_t{blockIdx.x} * kUpdateTile + threadIdx.x;
  for (int64_t k = 0; k < kUpdateTile; k += kUpdateThreads) {
    if (first + k < count) {
      body(first + k);
    }
  }
}

__device__ __forceinline__ GroupContext
context_of(const StepScalars& scalars, const GroupConstants& group) {
  return {
      scalars.lr * group.lr_scale, group.weight_decay, scalars.gradient_scale,
      scalars.step};
}

/// Launches a kernel over all tiles; of no elements, none.
template <typename... Parameters, typename... Arguments>
void launch_update(
    const char* name, void (*kernel)(int64_t, Parameters...), int64_t count,
    Stream stream, Arguments... arguments) {
  if (count > 0) {
    launch(
        name, kernel, blocks_of(count, kUpdateTile), kUpdateThreads, 0, stream, count,
        arguments...);
  }
}

}  // namespace tandem::cuda
