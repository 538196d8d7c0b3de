#pragma once

#include <istream>
#include <optional>
#include <string>

#include "tandem/data/dataset.h"

namespace tandem {

/// Returns a description of a data set without its samples, for other processes. The
/// description contains the name, the hashes, all sizes and types, the measured
/// normalization, the columns and the class names. Computes the hashes if they are
/// empty.
[[nodiscard]] std::string describe(const Dataset& data);

/// Reads a result of describe(). The returned data set has no bytes. Returns nullopt
/// for a text of another format, for sizes below 0, and if the inputs or targets would
/// have more than `most` bytes.
[[nodiscard]] std::optional<Dataset> read_description(std::istream& in, size_t most);

}  // namespace tandem
