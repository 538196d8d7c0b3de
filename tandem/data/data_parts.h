#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Parts of a run's data, such as "training images", with their shape and SHA-256. They
/// are equal on all ranks and hosts of a run, even if each holds only a share, and do
/// not change during a run. A checkpoint saves them for comparison.
using DataParts = std::vector<std::pair<std::string, std::string>>;

/// Returns the parts of a data set. Hashes all bytes if Dataset::hashes is empty.
DataParts parts_of(const DatasetSplits& data);

/// Returns a line for each part.
std::string to_text(const DataParts& parts);

/// Returns the names of the parts that are not in a text of to_text(), such as
/// "training labels".
std::string other_parts(const std::string& text, const DataParts& parts);

}  // namespace tandem
