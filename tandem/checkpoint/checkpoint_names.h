#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem {

// Needs no LibTorch: the program looks for checkpoints before it starts ranks.

/// "DIRECTORY/step-00000469".
std::string checkpoint_path(const std::string& directory, int64_t step);

/// The paths of a directory's checkpoints by their steps. Only names of "step-" and
/// digits are checkpoints: a user's copy, for instance, is not one. Throws DataError
/// when the directory is there but cannot be read.
std::map<int64_t, std::string> checkpoints_in(const std::string& directory);

/// The newest checkpoint in a directory, "" when there is none.
std::string newest_checkpoint(const std::string& directory);

}  // namespace tandem
