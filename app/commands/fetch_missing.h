#pragma once

#include <chrono>
#include <string>

namespace tandem::app {

/// What `train --fetch` does before ranks are started: where the files of a data set by
/// name are missing, runs `tandem data fetch` for it, its output on standard error.
/// Nothing for a folder, for digits, and where the files are.
///
/// `ranks_here` of this host call it, each in its process; one of them fetches while
/// the others wait, each for `timeout` at most. Throws DataError, after the line that
/// says why, when that failed.
void fetch_missing(
    const std::string& name, int ranks_here, std::chrono::milliseconds timeout);

}  // namespace tandem::app
