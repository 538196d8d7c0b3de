#pragma once

#include <cstdint>

#include "tandem/data/dataset.h"

namespace tandem {

/// Targets of the samples of a data set.
struct Targets {
  // True if targets are numbers; otherwise they are classes.
  bool are_numbers = false;
  // Number of classes (one per position), or of numbers, of a sample.
  int64_t per_sample = 1;
};

/// Returns the targets of a data set. Every sample has one class.
[[nodiscard]] inline Targets targets_of(const Dataset& /*data*/) {
  return {};
}

}  // namespace tandem
