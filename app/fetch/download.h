#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/fetch/mirrors.h"

namespace tandem::app {

/// Returns whether this build has libcurl and libarchive. If not, neither download()
/// nor unpack() may be called.
bool can_fetch();

/// Downloads a file into a folder from the first of `urls` (see RemoteSet) that has the
/// file. Moves that URL to the front of `urls`. The file is named NAME.part until its
/// size and SHA-256 are verified; a later call resumes the download from NAME.part. A
/// server that sends less than about a kilobyte per second for `stall_seconds` counts
/// as failed.
///
/// Returns "" on success, otherwise the reason why each URL failed. Throws DataError if
/// the folder cannot be written, or if a signal requests a stop (stop_signal()).
std::string download(
    const RemoteFile& file, std::vector<std::string>& urls, const std::string& folder,
    int64_t stall_seconds);

}  // namespace tandem::app
