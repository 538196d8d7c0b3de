#pragma once

#include <string>

#include "tandem/base/deadline.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// Returns whether a path is a .txt file or a folder with train.txt.
[[nodiscard]] bool has_text(const std::string& path);

/// Loads a text for the prediction of the next byte. The text is one sequence
/// (Dataset::is_sequence). A sample has DataOptions::block_size bytes as indices, and
/// the byte after each of them as target, so there are 256 classes. A folder has the
/// files of part_files.h. Throws DataError if a file is shorter than a sample.
[[nodiscard]] DatasetSplits load_text(
    const DataRequest& request, const Deadline& deadline);

}  // namespace tandem
