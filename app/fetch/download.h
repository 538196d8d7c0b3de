#pragma once

#include <string>
#include <vector>

#include "app/fetch/mirrors.h"

namespace tandem::app {

/// Whether a file is in the folder with the listed size and SHA-256. Throws DataError
/// when what is there cannot be read.
bool has_right_file(const std::string& folder, const RemoteFile& file);

/// Fetches files of one data set into a folder, each from the first mirror that has it.
class Downloader {
 public:
  /// `urls` as RemoteSet has them; `stall_seconds` as Transfer has it.
  Downloader(std::vector<std::string> urls, std::string folder, int64_t stall_seconds);

  /// Leaves the file in the folder, whole and with its SHA-256, or not at all: until
  /// then it is NAME.part, from which a later call goes on. A mirror that fails is
  /// passed over; the one that had the file is asked first for the next.
  ///
  /// Returns "", or what each mirror said when none has it. Throws DataError for what
  /// cannot be written, and when stop_signal() says so.
  std::string get(const RemoteFile& file);

 private:
  std::vector<std::string> urls_;
  const std::string folder_;
  const int64_t stall_seconds_;
};

}  // namespace tandem::app
