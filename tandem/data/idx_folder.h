#pragma once

#include <cstdint>
#include <string>

#include "tandem/data/dataset.h"

namespace tandem {

/// Loads the four IDX files of a folder, such as MNIST's (gzip or plain). The files of
/// images are idx3 (gray) or idx4 (samples x channels x height x width). Throws
/// DataError if a file is missing or damaged, or if the files do not match.
[[nodiscard]] DatasetSplits load_idx_folder(const std::string& folder);

/// Loads an IDX file of gray images (idx3), gzip or plain, as a data set without
/// labels: `targets` has no bytes. Throws the errors of read_idx() (data/idx.h).
[[nodiscard]] Dataset load_images(const std::string& path);

}  // namespace tandem
