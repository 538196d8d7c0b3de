#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/base/descriptor.h"
#include "tandem/base/process.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// Returns all settings that determine the result of load_dataset(), as one line.
/// Prepared data begin with this line, and are used only for a request with an equal
/// line.
[[nodiscard]] std::string prepared_data_key(const DataRequest& request);

/// Reads a data set once for all workers (rank processes) of this host, while the
/// workers start.
///
/// A child process decompresses and hashes the files while the workers load LibTorch,
/// which takes longer. It writes the data to anonymous memory that the workers inherit
/// and map. An environment variable passes the descriptor of the memory to the workers.
/// If load_dataset() throws in the child, the workers throw the same error. If the
/// child fails otherwise, the workers read the files themselves.
///
/// Construct the object while there are no other threads, because it forks. If the
/// process calls exec, the destructor does not run. The child then ends when it has
/// read the data or when the process that started the child ends.
class DataReader {
 public:
  /// Starts the child. `timeout` is the maximum time for which the child waits for a
  /// lock on the files. With `identifies`, the child also describes the data.
  explicit DataReader(
      const DataRequest& request,
      std::chrono::milliseconds timeout = std::chrono::minutes(5),
      bool identifies = false);
  /// Kills and reaps the child. Memory that workers have mapped remains valid.
  ~DataReader();
  DataReader(const DataReader&) = delete;
  DataReader& operator=(const DataReader&) = delete;

  /// Returns the variables to add to the environment of workers; empty if there is no
  /// child process.
  Variables variables() const;

  /// Reaps the child if it has ended. Does not block.
  void reap();

  /// Returns to_text() of the parts of the data (data_parts.h), or nullopt while the
  /// child reads the data. Returns "" without `identifies`, or if the child failed
  /// without an error of load_dataset(). Throws the errors of load_dataset().
  std::optional<std::string> identity();

 private:
  int memory_ = -1;
  // Read end of a pipe. The other end closes when the child ends.
  int done_ = -1;
  pid_t child_ = -1;
  bool reaped_ = false;
  // Read end of the pipe with the description of the data, and the bytes read so far.
  Descriptor identity_;
  std::string identity_text_;
};

/// Loads a data set like load_dataset(). If a DataReader prepares the data for this
/// process, waits for its child and maps the memory instead of reading files. Only the
/// first call does so, because it removes the environment variable. Always sets
/// Dataset::hashes of all parts. Samples of a mapped file are not prepared, because
/// processes share the pages of the file.
///
/// Throws the errors of load_dataset(). Also throws DataError if the child has not
/// ended by `deadline`.
DatasetSplits load_prepared_dataset(
    DataRequest request, const Deadline& deadline = Deadline(std::chrono::minutes(5)));

}  // namespace tandem
