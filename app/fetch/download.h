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

/// Extracts the files of a data set from its archive, a .tar.gz at `path`, into a
/// folder. Each file gets its name from `set` and must have the size and SHA-256 in
/// `set`. Names in the archive are not used as paths, and its other members are
/// ignored.
///
/// Throws DataError if the archive is damaged or lacks a file, or if a file has another
/// SHA-256. Also throws it if the folder cannot be written, or if a signal requests a
/// stop (stop_signal()).
void unpack(const std::string& path, const RemoteSet& set, const std::string& folder);

}  // namespace tandem::app
