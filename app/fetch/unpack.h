#pragma once

#include <string>

#include "app/fetch/mirrors.h"

namespace tandem::app {

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
