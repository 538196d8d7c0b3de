#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Memory for arenas that `comm` reduces: Communicator::make_buffer(). Segments that
/// are not in main memory get what heap_allocator() gives. `comm` outlives the
/// allocator, not the arenas.
ArenaAllocator buffers_of(Communicator& comm);

}  // namespace tandem
