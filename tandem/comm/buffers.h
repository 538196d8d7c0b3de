#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Returns an allocator for arenas that `comm` reduces: it calls
/// Communicator::make_buffer(). For segments that are not in main memory it uses
/// heap_allocator(). `comm` must outlive the allocator, not the arenas.
ArenaAllocator buffers_of(Communicator& comm);

}  // namespace tandem
