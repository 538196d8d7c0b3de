#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Parts of a run's data: pairs of a name, such as "training images", and a text with
/// shape and SHA-256. They are equal on all ranks and hosts of a run, even if each rank
/// holds only a share, and do not change during a run. A checkpoint contains them for
/// comparison.
using DataParts = std::vector<std::pair<std::string, std::string>>;

/// Returns the parts of a data set. Hashes all bytes if Dataset::hashes is empty.
DataParts parts_of(const DatasetSplits& data);

/// Returns a text with one line for each part.
std::string to_text(const DataParts& parts);

/// Returns the names of the parts whose lines are missing in `text`, a result of
/// to_text() for other data. Example: "training labels".
std::string other_parts(const std::string& text, const DataParts& parts);

}  // namespace tandem
