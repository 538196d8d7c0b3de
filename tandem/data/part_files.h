#pragma once

#include <string>
#include <vector>

namespace tandem {

/// Paths of the parts of a data set, with a file or a folder for each part. "": there
/// is no such part. If there are a validation part and no test part, the validation
/// part is the test part.
struct PartFiles {
  std::string train;
  std::string validation;
  std::string test;
};

/// Returns whether a path is a file with an ending, such as ".csv", or a folder with
/// the training part in a file of this ending (part_files()).
[[nodiscard]] bool has_part_files(const std::string& path, const std::string& ending);

/// Returns the files of a path for which has_part_files() returns true: the file
/// itself, or the files of the parts in the folder. Files of a part are called train or
/// training; val, valid or validation; test or testing; in upper or lower case. Throws
/// DataError if a part has two files.
[[nodiscard]] PartFiles part_files(const std::string& path, const std::string& ending);

/// Returns the folders of the parts in a folder, with the names of part_files().
/// Adds the names of the other folders to `others`; ignores names with a dot at their
/// beginning. Throws DataError if a part has two folders.
[[nodiscard]] PartFiles part_folders(
    const std::string& path, std::vector<std::string>& others);

/// Returns the names of the folders in a folder, sorted, without names that begin with
/// a dot. Throws DataError if the folder cannot be read.
[[nodiscard]] std::vector<std::string> folders_in(const std::string& path);

}  // namespace tandem
