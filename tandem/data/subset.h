#pragma once

#include <cstdint>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Returns the samples of a data set that have these numbers. The numbers are in
/// ascending order. The samples of a mapped file stay in place (Dataset::places); other
/// samples are copied.
[[nodiscard]] Dataset samples_at(const Dataset& whole, std::vector<int64_t> samples);

/// Returns `limit` samples at equal distances, starting with the first sample; all
/// samples if limit is 0. So a limit keeps all classes of samples that are in order of
/// their classes.
[[nodiscard]] Dataset evenly_spaced_samples(Dataset data, int64_t limit);

}  // namespace tandem
