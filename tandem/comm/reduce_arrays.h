#pragma once

#include <ATen/core/Tensor.h>

#include <c10/util/ArrayRef.h>
#include <cstdint>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Replaces the elements of `total` by their reduction with those of `next`.
void reduce_into(at::Tensor& total, const at::Tensor& next, ReduceOp op);

/// Reduces the arrays in `from`, of `count` elements each, and writes the result to
/// each array in `to`. For a sum, to[j][i] = from[0][i] + from[1][i] + from[2][i] and
/// so on. Elements are reduced in the order of `from`, and each sum is rounded to the
/// dtype. On every CPU, results have the same bits as those of at::Tensor::add_,
/// at::minimum and at::maximum.
///
/// An array may appear several times and in both lists. Different arrays do not
/// overlap.
void reduce_arrays(
    ReduceOp op, at::ScalarType dtype, c10::ArrayRef<char*> to,
    c10::ArrayRef<const char*> from, int64_t count);

}  // namespace tandem
