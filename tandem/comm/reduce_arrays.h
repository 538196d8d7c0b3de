#pragma once

#include <ATen/core/Tensor.h>

#include <c10/util/ArrayRef.h>
#include <cstdint>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Reduces arrays of `count` elements, in the order of `from`, into each array of `to`:
/// to[j][i] = from[0][i] + from[1][i] + ..., or their minimum or maximum. Each sum is
/// rounded to the dtype. The bits are those of at::add_, at::minimum and at::maximum on
/// every CPU.
///
/// An array may appear several times and in both lists. Different arrays do not
/// overlap.
void reduce_arrays(
    ReduceOp op, at::ScalarType dtype, c10::ArrayRef<char*> to,
    c10::ArrayRef<const char*> from, int64_t count);

}  // namespace tandem
