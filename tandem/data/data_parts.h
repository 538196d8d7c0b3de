#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// A run's data, part by part: "training images", their shape and SHA-256, and so on.
/// Equal on all ranks and hosts of a run, also where each holds a share only, and for
/// the whole of a run: a checkpoint holds it.
using DataParts = std::vector<std::pair<std::string, std::string>>;

/// Reads all bytes where Dataset::hashes are not there.
DataParts parts_of(const DatasetSplits& data);

/// A line for each part.
std::string to_text(const DataParts& parts);

/// The names of the parts that differ from those in such a text: "training labels".
std::string other_parts(const std::string& text, const DataParts& parts);

}  // namespace tandem
