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
/// workers inherit and map; loading LibTorch takes them longer than that. An
/// environment variable tells workers of it. Where anything goes wrong, a worker finds
/// nothing and reads the files itself, so errors come from ranks, as if this class did
/// not exist.
///
/// Make it while there are no other threads, since it forks. An exec may forget it: the
/// child ends by itself, and at the latest with the process that made it.
class DataReader {
 public:
  /// Starts the child. `name_or_folder` and `limit` as load_dataset() takes them;
  /// `timeout` is how long others may keep it from the files.
  DataReader(
      const std::string& name_or_folder, int64_t limit,
      std::chrono::milliseconds timeout = std::chrono::minutes(5));
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

/// load_dataset(), but where a DataReader prepared the same for this process: waits for
/// its child and maps its memory instead of reading files. The first call uses up the
/// variable. `hashes` are set either way; the child computes them for all ranks.
///
/// Throws DataError when the child has not ended by `deadline`, and as load_dataset().
DatasetSplits load_prepared_dataset(
    const std::string& name_or_folder, int64_t limit = 0,
    const Deadline& deadline = Deadline(std::chrono::minutes(5)));

}  // namespace tandem
