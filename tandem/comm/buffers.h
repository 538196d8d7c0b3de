#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Returns an allocator for arenas that `comm` reduces. The memory comes from
/// Communicator::make_buffer() for segments in main memory, and from heap_allocator()
/// for other segments. `comm` must outlive the allocator, but not the arenas.
ArenaAllocator buffers_of(Communicator& comm);

}  // namespace tandem
