#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "tandem/base/process.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Reads a data set once for all workers of this host, while they start.
///
/// A child process decompresses and hashes the files, into memory without a name, which
/// workers inherit and map; loading LibTorch takes them longer than that. Workers are
/// told by a variable. When anything goes wrong there, a worker that looks finds
/// nothing and reads the files itself: so errors come from ranks, as if this did not
/// exist.
///
/// Make it where there are no other threads. It may be forgotten (exec): the child ends
/// by itself, and with the process that made it.
class DataReader {
 public:
  /// Starts the child. `name_or_folder` and `limit` as load_dataset() takes them.
  DataReader(const std::string& name_or_folder, int64_t limit);
  /// Ends and reaps the child. What workers have mapped stays.
  ~DataReader();
  DataReader(const DataReader&) = delete;
  DataReader& operator=(const DataReader&) = delete;

  /// For the environment of workers; empty when there is no child.
  Variables variables() const;

 private:
  int memory_ = -1;
  // The end of this pipe says that the child is done.
  int done_ = -1;
  pid_t child_ = -1;
};

/// load_dataset(), without reading files where a DataReader prepared the same for this
/// process: then waits for its child, and maps its memory. The first call uses up the
/// variable. Either way with `hashes`, which the child computes for all ranks.
DatasetSplits load_prepared_dataset(
    const std::string& name_or_folder, int64_t limit = 0);

}  // namespace tandem
