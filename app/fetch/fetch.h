#pragma once

#include <cstdint>
#include <string>

#include "app/fetch/mirrors.h"

namespace tandem::app {

struct FetchOptions {
  // Folder for the files; "" for $TANDEM_DATA/NAME, or for NAME in the cache directory
  // if $TANDEM_DATA is not set or cannot be written.
  std::string to;
  // Time, in seconds, after which a stalled server counts as failed (download()).
  int64_t stall_seconds = 30;
};

/// Downloads the files of a data set that are missing or have a wrong SHA-256. Logs
/// each file to standard output. Returns the folder with the files.
///
/// Before any request, throws DataError if the folder cannot be written and ConfigError
/// if this build cannot download. Throws DataError if no mirror has a file; a later
/// call resumes the download.
std::string fetch(const RemoteSet& set, const FetchOptions& options);

}  // namespace tandem::app
