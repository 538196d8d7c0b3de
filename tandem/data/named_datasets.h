#pragma once

#include <string>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// A data set that has a name.
struct NamedDataset {
  const char* name;
  // Name in messages.
  const char* title;
  const char* help;
  // Names of the files that the user has to provide; empty: tandem makes the samples.
  std::vector<std::string> files;
  // Suffix that is allowed at the end of each file's name, such as ".gz"; "" for none.
  const char* ending;
  // Loads the files in a folder.
  DatasetSplits (*load)(const std::string& folder);
  // Names of the classes; empty: the names from `load`.
  std::vector<std::string> class_names;
};
/// Returns all named data sets.
const std::vector<NamedDataset>& named_datasets();

/// Returns the data set with a name, or null if there is none.
const NamedDataset* find_named(const std::string& name);

/// Loads a named data set. Throws DataError if files are missing or damaged, or if
/// another process still draws the digits at `deadline`.
DatasetSplits load_named(const NamedDataset& set, const Deadline& deadline);

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
