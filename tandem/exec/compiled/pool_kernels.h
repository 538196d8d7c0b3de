#pragma once

#include "tandem/core/bf16.h"
#include "tandem/kernels/pool_loops.h"

namespace tandem {

/// Max pooling; with `relu` negative results become zero. NaN wins, as in PyTorch.
/// `which`: for each output the place of its input in the window, row by row, the
/// first of equal ones. Windows of at most 15 x 15. T: float or Bf16.
template <typename T>
void max_pool(const PoolShape& shape, bool relu, const T* in, T* out, uint8_t* which);

/// Writes all of `grad_in`.
template <typename T>
void max_pool_gradient(
    const PoolShape& shape, const uint8_t* which, const T* grad_out, T* grad_in);

}  // namespace tandem
