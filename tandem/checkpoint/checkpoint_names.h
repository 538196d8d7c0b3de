#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem {

// This header does not depend on LibTorch, because `tandem`, which does not link
// LibTorch, searches for checkpoints before it starts ranks.

/// Returns "DIRECTORY/step-00000469".
std::string checkpoint_path(const std::string& directory, int64_t step);

/// Returns the paths of a directory's checkpoints, keyed by step. The name of a
/// checkpoint is "step-" and digits. Directories with other names, such as a user's
/// copies, are ignored. Throws DataError if the directory exists but cannot be read.
std::map<int64_t, std::string> checkpoints_in(const std::string& directory);

/// Returns whether a name is that of a checkpoint.
bool is_checkpoint_name(const std::string& name);

/// Returns the path of the newest checkpoint in a directory; "" if there is no
/// checkpoint.
std::string newest_checkpoint(const std::string& directory);

}  // namespace tandem
