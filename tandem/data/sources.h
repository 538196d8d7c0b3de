#pragma once

#include <string>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// A format of files that `--data PATH` accepts.
struct DataSource {
  // Names of the files, for help and errors.
  const char* files;
  // Returns whether a file or folder has this format. Reads only names, not the content
  // of files.
  bool (*matches)(const std::string& path);
  // Loads the training part, and the validation and test parts if the files have them.
  // The size of a missing part is 0.
  DatasetSplits (*load)(const DataRequest& request, const Deadline& deadline);
  // Names of those settings that apply to this format, but not to every format.
  std::vector<std::string> settings;
  // True if the normalization "default" is measured for this format.
  bool is_measured = true;
  // True: a limit selects the first samples, because samples are shuffled or a
  // sequence. False: it selects samples at equal distances.
  bool takes_first = false;
};

/// Returns all formats. The first that matches a path is used.
[[nodiscard]] const std::vector<DataSource>& data_sources();

/// Returns the format of a path, or null if no format matches.
[[nodiscard]] const DataSource* match_source(const std::string& path);

/// Returns the format of an existing path. Throws DataError if no format matches.
[[nodiscard]] const DataSource& find_source(const std::string& path);

}  // namespace tandem
