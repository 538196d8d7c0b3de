#pragma once

#include <string>
#include <vector>

namespace tandem {

/// Returns the folders in which `--data NAME` looks for a data set's files, in this
/// order: $TANDEM_DATA/NAME, for mnist also $TANDEM_DATA, and NAME in the cache, if
/// there is a cache.
std::vector<std::string> dataset_folders(const std::string& name);

/// Returns the first of these folders that contains all files of the data set, with any
/// content. Returns "" if there is none, or if no data set of that name consists of
/// files.
std::string find_dataset(const std::string& name);

/// Returns whether `--data NAME` would fail because files are missing. False for a
/// folder, and for digits, which are drawn.
bool dataset_is_missing(const std::string& name);

}  // namespace tandem
