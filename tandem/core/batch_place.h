#pragma once

#include <cstdint>

namespace tandem {

/// Which samples a batch has. It lies in the memory of the device, as StepScalars do
/// and for the same reason.
struct BatchPlace {
  uint64_t seed = 0;
  int64_t epoch = 0;
  // Sample i of the batch has position first_position + i * position_stride in its
  // epoch (data/sampler.h), of which dropout masks are a function,
  int64_t first_position = 0;
  int64_t position_stride = 1;
  // and is number first_index + i * index_stride of this shard's indices.
  int64_t first_index = 0;
  int64_t index_stride = 1;
};

}  // namespace tandem
