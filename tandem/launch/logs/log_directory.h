#pragma once

#include <memory>
#include <string>

#include "tandem/launch/logs/stream_sink.h"
#include "tandem/launch/logs/torchrun_options.h"

namespace tandem {

/// Directory with the log files and error files of a host's ranks. The files have
/// torchrun's names: DIR/RUN_XXXXXX/attempt_N/LOCAL_RANK/stdout.log, stderr.log and
/// error.json. N is the number of the attempt, from 0. Not thread-safe.
class LogDirectory {
 public:
  /// Creates the directory of a run. `run` is the name of the run; "" for none. Throws
  /// DataError if the directory cannot be created.
  LogDirectory(LogOptions options, const std::string& run);

  /// Removes the directory if it is temporary. It is temporary if the options do not
  /// name a directory, there are no log files, and keep() was not called.
  ~LogDirectory();
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  /// Creates the directories of attempt `number` (from 0) for `nproc` ranks. The other
  /// functions then use these directories. Throws DataError on failure.
  void begin_attempt(int number, int nproc);

  /// Returns the destinations of a rank's standard output or error, without the prefix.
  /// Creates the log files; throws DataError on failure.
  StreamOptions output_of(int local_rank) const;
  StreamOptions errors_of(int local_rank) const;

  /// Returns the path of a rank's error file, which exists only if the rank failed.
  std::string error_file(int local_rank) const;

  /// Keeps the directory after the end of the launcher.
  void keep() {
    temporary_ = false;
  }
  /// Returns whether the directory exists after the end of the launcher.
  bool is_kept() const {
    return !temporary_;
  }

 private:
  std::string directory_of(int local_rank) const;
  bool is_shown(int local_rank) const;

  LogOptions options_;
  bool temporary_;
  std::string base_;
  std::string run_;
  std::string attempt_;
  std::shared_ptr<FilteredFile> filtered_output_;
  std::shared_ptr<FilteredFile> filtered_errors_;
};

}  // namespace tandem
