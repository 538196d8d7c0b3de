#pragma once

#include <cstdint>
#include <string>

#include "app/fetch/mirrors.h"

namespace tandem::app {

struct FetchOptions {
  // The folder for the files; "" is the first folder in which `--data NAME` looks that
  // can be written: $TANDEM_DATA/NAME or the cache.
  std::string to;
  // As for download().
  int64_t stall_seconds = 30;
};

/// Downloads those files of a data set that are missing in their folder or differ from
/// their SHA-256. Reports on standard output. Returns the folder.
///
/// Throws DataError if the folder cannot be written, and ConfigError if this build
/// cannot download; both before any request. Throws DataError if no mirror has a file;
/// a later call resumes.
std::string fetch(const RemoteSet& set, const FetchOptions& options);

}  // namespace tandem::app
