#pragma once

#include <string>

namespace tandem {

/// Files of a data set with a file for each part.
struct PartFiles {
  std::string train;
  // Path of the test part's file; "" if there is no test part.
  std::string test;
};

/// Returns whether a path is a file with an ending, such as ".csv", or a folder with
/// the file "train" of this ending.
[[nodiscard]] bool has_part_files(const std::string& path, const std::string& ending);

/// Returns the files of a path for which has_part_files() returns true: the file
/// itself, or "train" and, if it exists, "test" in the folder.
[[nodiscard]] PartFiles part_files(const std::string& path, const std::string& ending);

}  // namespace tandem
