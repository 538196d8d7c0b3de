#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// A named data set, with its help text and the function that loads it.
struct DatasetEntry {
  const char* name;
  const char* help;
  std::function<DatasetSplits(const Deadline&)> load;
};
/// Returns all named data sets.
const std::vector<DatasetEntry>& dataset_table();

/// Returns the folders in which `--data NAME` searches for a data set's files, in
/// order. They are $TANDEM_DATA/NAME, for mnist also $TANDEM_DATA, and NAME in
/// cache_directory(), if there is a cache directory.
std::vector<std::string> dataset_folders(const std::string& name);

/// Returns the first folder of dataset_folders(name) that contains all files of the
/// data set; does not check their content. Returns "" if there is no such folder, or if
/// `name` is not a data set that consists of files.
std::string find_dataset(const std::string& name);

/// Returns whether `--data NAME` would fail because files are missing. Returns false
/// for the path of a folder, and for digits, which tandem draws.
bool dataset_is_missing(const std::string& name);

}  // namespace tandem
