#pragma once

#include <cstdint>

#include "tandem/core/batch_place.h"

namespace tandem {

/// What changes from one micro-batch to the next, where the parameters are, as
/// StepScalars and for the same reason. Tensors of it have its words as int64.
struct BatchRecord {
  // The first words: kernels that ask where samples are take the record's address.
  BatchPlace place;
  // On the summed loss (exec/stage_executor.h).
  double loss_weight = 0;
  // {loss, correct, samples}, to which the loss adds: 0 when it arrives.
  double sums[3] = {};
};

constexpr int64_t kBatchRecordWords = sizeof(BatchRecord) / sizeof(int64_t);
static_assert(sizeof(BatchRecord) % sizeof(int64_t) == 0, "all of it is words");

}  // namespace tandem
