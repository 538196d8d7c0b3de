#include "tandem/parallel/reduce/replicas.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"

namespace tandem {

namespace {
constexpr int64_t kHexDigits = 64;
}  // namespace

void start_alike(Communicator& comm, ModelArenas& arenas) {
  comm.check_equal(
      "the models or buckets",
      arenas.parameters().layout().describe() + arenas.buffers().layout().describe());
  broadcast_arena(comm, arenas.parameters());
  broadcast_arena(comm, arenas.buffers());
}

Drift find_drift(Communicator& comm, ModelArenas& arenas) {
  Drift drift;
  const auto& slots = arenas.parameters().layout().slots();
  const auto num_slots = static_cast<int64_t>(slots.size());
  if (comm.size() == 1 || num_slots == 0) {
    return drift;
  }
  const auto digests = at::empty({num_slots, kHexDigits}, at::kChar);
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    const auto values =
        arenas.tensors()[static_cast<size_t>(slot)].detach().contiguous().cpu();
    std::memcpy(
        digests[slot].data_ptr(), sha256_hex(values.data_ptr(), values.nbytes()).data(),
        kHexDigits);
  }
  const auto all = comm.stack(digests, "drift check");
  for (int rank = 1; rank < comm.size(); ++rank) {
    for (int64_t slot = num_slots - 1; slot >= 0; --slot) {
      if (!all[rank][slot].equal(all[0][slot])) {
        // Slots are in reverse order of registration.
        drift.parameter = drift.ranks.empty() ? slots[static_cast<size_t>(slot)].name
                                              : drift.parameter;
        drift.ranks.push_back(rank);
        break;
      }
    }
  }
  return drift;
}

void sync_buffers(Communicator& comm, ModelArenas& arenas, BufferSync how) {
  Arena& buffers = arenas.buffers();
  if (how == BufferSync::broadcast) {
    broadcast_arena(comm, buffers);
  } else if (how == BufferSync::average) {
    // Integer buffers are counters, which are already equal.
    for (const auto& range : buffers.layout().ranges()) {
      auto slice = buffers.slice(range);
      if (at::isFloatingType(slice.scalar_type())) {
        comm.all_reduce(slice, ReduceOp::sum, "buffers")->wait();
        slice.div_(comm.size());
      }
    }
  }
}

void broadcast_arena(Communicator& comm, Arena& arena) {
  for (const auto& range : arena.layout().ranges()) {
    if (arena.holds(range.segment)) {
      comm.broadcast(arena.slice(range), 0, arena.name())->wait();
    }
  }
}

}  // namespace tandem
