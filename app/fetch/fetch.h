#pragma once

#include <string>

#include "app/fetch/mirrors.h"

namespace tandem::app {

struct FetchOptions {
  // The folder for the files; "": where `--data NAME` looks: $TANDEM_DATA/NAME where
  // that can be written, else the cache.
  std::string to;
  // As Transfer has it.
  int64_t stall_seconds = 30;
};

/// Sees to it that a data set's files are in a folder, with their listed SHA-256: keeps
/// those that are there, and fetches the others. Says on standard output what it does.
/// Returns the folder.
///
/// Throws, before anything is fetched, DataError when the folder cannot be written and
/// ConfigError when this build cannot fetch; DataError when no mirror has a file, with
/// what to put where by hand. What is half fetched stays beside its place, and a later
/// call goes on from there.
std::string fetch(const RemoteSet& set, const FetchOptions& options);

}  // namespace tandem::app
