#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/launch/logs/rank_output.h"

namespace tandem {

/// File to which the launcher writes output of ranks. Not thread-safe.
class LogFile {
 public:
  /// Creates the file, or empties an existing file. Throws DataError on failure.
  explicit LogFile(std::string path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Appends text. If a write fails, logs a warning and drops this and later texts; the
  /// run continues.
  void add(const char* data, size_t size);

 private:
  std::string path_;
  int fd_;
};

/// File for those lines of several streams that contain any of `texts`.
struct FilteredFile {
  std::vector<std::string> texts;
  LogFile file;

  /// Adds those of the given lines that contain any of `texts`.
  void add(const std::string& lines);
};

/// Destinations of one stream of a rank.
struct StreamOptions {
  // Prefix of each line on the console and in `filtered`.
  std::string prefix;
  // True if the lines appear on the console.
  bool on_console = true;
  // File to which all bytes of the stream are written; null: none.
  std::shared_ptr<LogFile> file;
  // File to which some of the lines are written; null: none.
  std::shared_ptr<FilteredFile> filtered;
};

/// Forwards one stream of a rank to its destinations. Not thread-safe.
class StreamSink {
 public:
  /// `console` must outlive the object.
  StreamSink(OutputQueue& console, StreamOptions options);

  /// Adds output of the rank.
  void add(const char* data, size_t size);
  /// Completes the last line. Call it after the rank has ended.
  void finish();

  /// Returns whether the console is full. add() must then wait, unless the rank ended.
  bool full() const {
    return options_.on_console && console_->full();
  }

  /// Returns the last lines, at most `most`, of a stream that is not on the console.
  /// Returns an empty list for a stream on the console.
  std::vector<std::string> last_hidden_lines(size_t most) const;

  /// Returns the last error in the end of the stream: the text that std::terminate()
  /// prints after "what():", or a line of log_error(). Returns "" if there is none.
  std::string last_error() const;

 private:
  void forward(std::string lines);

  OutputQueue* console_;
  StreamOptions options_;
  LineCutter cutter_;
  // The end of the stream.
  std::string tail_;
};

}  // namespace tandem
