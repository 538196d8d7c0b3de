#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Returns an allocator for arenas that `comm` reduces. It calls
/// Communicator::make_buffer(), or heap_allocator() for segments that are not in main
/// memory. `comm` must outlive the allocator, but not the arenas.
ArenaAllocator buffers_of(Communicator& comm);

}  // namespace tandem
