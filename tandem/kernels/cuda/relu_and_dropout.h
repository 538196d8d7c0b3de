#pragma once

#include <cstdint>

#include "tandem/core/batch_place.h"

namespace tandem::cuda {

/// What a kernel does to its results before it writes them.
struct ReluAndDropout {
  // Below 0 becomes 0.
  bool relu = false;
  // Then dropout of elements, as dropout.h has it; null: none. On the device.
  const BatchPlace* place = nullptr;
  int64_t layer = 0;
  double p = 0;

  /// By what the values that are kept are multiplied.
  double scale() const {
    return place == nullptr ? 1 : 1 / (1 - p);
  }
};

}  // namespace tandem::cuda
