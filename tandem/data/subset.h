#pragma once

#include <cstdint>
#include <string>
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

/// Moves a fraction of the samples of `whole` to a new data set, which it returns. Both
/// data sets keep the order of their samples. If `whole` is a sequence, its last
/// samples are moved. Otherwise the samples are chosen randomly, and the choice depends
/// only on the seed, the number of samples and the fraction.
///
/// The samples of a mapped file stay in place (Dataset::places); other samples are
/// copied. `setting` is the name of the setting that contains the fraction, such as
/// "validation", for errors. Throws ConfigError if one of the two data sets would have
/// no samples.
[[nodiscard]] Dataset hold_out(
    Dataset& whole, double fraction, uint64_t seed, const std::string& setting);

}  // namespace tandem
