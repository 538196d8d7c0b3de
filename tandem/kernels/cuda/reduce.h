#pragma once

#include "tandem/kernels/cuda/device.h"

namespace tandem::cuda {

// Sums and largest values over threads, in an order that depends on nothing.

/// The sum over a warp's lanes, with the same bits in each. All lanes call it.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int bit = kWarpSize / 2; bit > 0; bit /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, bit);
  }
  return value;
}

/// The largest of a warp's values; a NaN is larger than none.
template <typename T>
__device__ __forceinline__ T warp_max(T value) {
  for (int bit = kWarpSize / 2; bit > 0; bit /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, bit);
    value = other > value ? other : value;
  }
  return value;
}

/// The sum over a block's threads, whose number is a multiple of 32. `parts`: shared, a
/// value for each warp, not used for anything else since the block's last barrier. Of
/// use in thread 0 only. All threads call it.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* parts) {
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) {
    parts[threadIdx.x / kWarpSize] = value;
  }
  __syncthreads();
  T sum = 0;
  if (threadIdx.x == 0) {
    for (unsigned warp = 0; warp < blockDim.x / kWarpSize; ++warp) {
      sum += parts[warp];
    }
  }
  return sum;
}

}  // namespace tandem::cuda
