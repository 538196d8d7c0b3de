#pragma once

#include <string>

#include "app/fetch/mirrors.h"

namespace tandem::app {

/// Extracts a set's files from its archive, a .tar.gz at `path`, into a folder. Each
/// file gets its listed name and must have its listed size and SHA-256; no name in the
/// archive is used as a path. Other members of the archive are ignored.
///
/// Throws DataError if the archive is damaged or lacks a file, if a file differs from
/// its entry in the list, if the folder cannot be written, and on stop_signal().
void unpack(const std::string& path, const RemoteSet& set, const std::string& folder);

}  // namespace tandem::app
