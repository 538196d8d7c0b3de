#include "tandem/comm/buffers.h"

namespace tandem {

ArenaAllocator buffers_of(Communicator& comm) {
  return [&comm](const std::string& name, int64_t index, const Segment& segment) {
    return segment.device.is_cpu() ? comm.make_buffer(segment.numel, segment.dtype)
                                   : heap_allocator()(name, index, segment);
  };
}

}  // namespace tandem
