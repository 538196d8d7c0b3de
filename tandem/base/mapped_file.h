#pragma once

#include <string>

#include "tandem/base/bytes.h"

namespace tandem {

/// Maps a regular file into memory, read-only. The kernel reads a page at its first
/// access and can evict it again, so the file may be larger than memory. The last copy
/// of the bytes removes the mapping. If another process shortens the file, an access
/// after its new end ends this process with an error (lost_pages.h).
///
/// Throws DataError with the path if the file cannot be mapped, for example because it
/// is missing or is not a regular file.
Bytes map_file(const std::string& path);

/// Maps the first `size` bytes of a descriptor into memory, read-only. The last copy of
/// the bytes removes the mapping. Returns no bytes if `size` is 0 or the mapping fails;
/// errno then has the reason of a failure.
Bytes map_descriptor(int fd, size_t size);

/// Makes the kernel start to read `size` bytes at `data`, a part of a mapped file.
/// Returns immediately. Without this call, the first access also reads many pages
/// around it, which can be several MB.
void read_ahead(const uint8_t* data, size_t size);

/// Returns the number of this thread's page faults so far that waited for storage.
int64_t num_major_faults();

/// Returns `size` bytes of `all` from `offset` on, without copying them. The range must
/// be inside `all`.
Bytes part_of(const Bytes& all, size_t offset, size_t size);

}  // namespace tandem
