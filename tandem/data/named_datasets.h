#pragma once

#include <string>
#include <vector>

namespace tandem {

/// Where `--data NAME` looks for a data set's files, in this order: $TANDEM_DATA/NAME,
/// for mnist $TANDEM_DATA itself, and NAME in the cache, where there is one.
std::vector<std::string> dataset_folders(const std::string& name);

/// The first of them with all the files that a data set of dataset_table() has,
/// whatever is in them; "" when none has, or no data set of that name consists of
/// files.
std::string find_dataset(const std::string& name);

/// Whether `--data NAME` would fail for want of files: false for a folder, and for
/// digits, which are drawn.
bool dataset_is_missing(const std::string& name);

}  // namespace tandem
