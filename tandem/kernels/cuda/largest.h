#pragma once

#include "tandem/kernels/cuda/device.h"

namespace tandem::cuda {

/// A largest value of a pool's window, and its number there.
template <typename T>
struct Largest {
  T value;
  unsigned number;
};

/// The first of the largest, or the last NaN: `later` has the higher numbers.
template <typename T>
__device__ __forceinline__ Largest<T> largest_of(
    const Largest<T>& one, const Largest<T>& later) {
  return later.value > one.value || later.value != later.value ? later : one;
}

}  // namespace tandem::cuda
