#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem {

// This file needs no LibTorch: the program looks for checkpoints before it starts
// ranks.

/// Returns "DIRECTORY/step-00000469".
std::string checkpoint_path(const std::string& directory, int64_t step);

/// Returns the paths of a directory's checkpoints by their steps. Only names of "step-"
/// and digits are checkpoints; a user's copy, for example, is not. Throws DataError if
/// the directory exists but cannot be read.
std::map<int64_t, std::string> checkpoints_in(const std::string& directory);

/// Returns the newest checkpoint in a directory, "" if there is none.
std::string newest_checkpoint(const std::string& directory);

}  // namespace tandem
