#pragma once

#include <string>

#include "app/fetch/mirrors.h"

namespace tandem::app {

/// Takes a set's files out of its archive, a .tar.gz at `path`, into a folder: those
/// that are listed, each of its listed size and SHA-256, written in one step; whatever
/// else the archive holds is passed over. No name in the archive is ever used as a
/// path.
///
/// Throws DataError for an archive that is damaged (TarReader) or lacks a file, for a
/// file of another size or SHA-256 or that is there twice, for what cannot be written,
/// and when stop_signal() says so.
void unpack(const std::string& path, const RemoteSet& set, const std::string& folder);

}  // namespace tandem::app
