#pragma once

#include <ATen/core/Tensor.h>

#include <c10/util/ArrayRef.h>
#include <cstdint>

#include "tandem/comm/communicator.h"

namespace tandem {

/// to[j][i] = from[0][i] + from[1][i] + ..., for each j: `count` elements, added in
/// that order, each sum rounded to the dtype; or their minimum or maximum. The bits are
/// those of at::add_, at::minimum and at::maximum, whatever the CPU.
///
/// An array may be given several times, in both lists; otherwise they do not overlap.
void reduce_arrays(
    ReduceOp op, at::ScalarType dtype, c10::ArrayRef<char*> to,
    c10::ArrayRef<const char*> from, int64_t count);

}  // namespace tandem
