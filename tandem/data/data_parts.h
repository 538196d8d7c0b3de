#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// A run's data, part by part: "training images", their shape and SHA-256, and so on.
/// Equal on all ranks and hosts of a run, even where each holds only a share, and from
/// its start to its end: a checkpoint keeps it, to compare.
using DataParts = std::vector<std::pair<std::string, std::string>>;

/// Hashes all bytes where Dataset::hashes is empty.
DataParts parts_of(const DatasetSplits& data);

/// A line for each part.
std::string to_text(const DataParts& parts);

/// The names of the parts that are not in a text of to_text(), such as "training
/// labels".
std::string other_parts(const std::string& text, const DataParts& parts);

}  // namespace tandem
