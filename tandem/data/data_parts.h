#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Description of a run's data: pairs of a name, such as "training images", and a text
/// with shape and SHA-256. The description is equal on all ranks, even if each rank
/// holds only a share of the data, and does not change during a run. A checkpoint
/// contains the description, so that a resumed run can check that its data are the
/// same.
using DataParts = std::vector<std::pair<std::string, std::string>>;

/// Returns the description of a data set. Hashes all bytes if Dataset::hashes is empty.
DataParts parts_of(const DatasetSplits& data);

/// Returns the description of one part. `name` is "training", "test" or "validation".
DataParts parts_of(const std::string& name, const Dataset& part);

/// Returns the description as text, with one line for each pair.
std::string to_text(const DataParts& parts);

/// Compares data with `text`, which is to_text() of other data. Returns the names of
/// the parts that differ, such as "training labels", or that `text` lacks.
std::string other_parts(const std::string& text, const DataParts& parts);

/// Returns the names of the parts of `text`, which is to_text() of other data, that
/// `parts` lacks, such as "validation images, validation labels".
std::string missing_parts(const std::string& text, const DataParts& parts);

/// Returns the first digits of the SHA-256 of a part, such as "test images", in the
/// text of to_text(); "" if the text does not have the part.
std::string hash_in(const std::string& text, const std::string& part);

}  // namespace tandem
