#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "tandem/base/process.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Reads a data set once for all workers of this host, while they start.
///
/// A child process decompresses and hashes the files, into anonymous memory that
/// workers inherit and map; loading LibTorch takes the workers longer. An environment
/// variable passes its place to workers. If anything fails, a worker finds no data and
/// reads the files itself, so ranks report errors as if this class did not exist.
///
/// Create the object while there are no other threads, since it forks. An exec may drop
/// it: the child then ends alone, at the latest with the process that started it.
class DataReader {
 public:
  /// Starts the child. `name_or_folder` and `limit` as in load_dataset(); `timeout` is
  /// the longest time that other processes may lock the files.
  DataReader(
      const std::string& name_or_folder, int64_t limit,
      std::chrono::milliseconds timeout = std::chrono::minutes(5));
  /// Ends and reaps the child. Memory that workers have mapped stays.
  ~DataReader();
  DataReader(const DataReader&) = delete;
  DataReader& operator=(const DataReader&) = delete;

  /// Returns variables for the environment of workers, none if there is no child.
  Variables variables() const;

 private:
  int memory_ = -1;
  // The child closes this pipe when it is done.
  int done_ = -1;
  pid_t child_ = -1;
};

/// Loads a data set as load_dataset(). If a DataReader prepared it for this process,
/// waits for its child and maps its memory instead of reading files. The first call
/// uses up the variable. `hashes` are always set; the child computes them for all
/// ranks.
///
/// Throws DataError if the child has not ended by `deadline`, and as load_dataset().
DatasetSplits load_prepared_dataset(
    const std::string& name_or_folder, int64_t limit = 0,
    const Deadline& deadline = Deadline(std::chrono::minutes(5)));

}  // namespace tandem
