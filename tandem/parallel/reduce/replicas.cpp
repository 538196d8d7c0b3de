#include "tandem/parallel/reduce/replicas.h"

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"

namespace tandem {

namespace {
constexpr int64_t kHexDigits = 64;

// Gathers `values` at rank 0, as the master in Zinkevich et al. does, and sums them in
// rank order. Broadcasts the sum, because all ranks evaluate.
void sum_at_first_rank(Communicator& comm, at::Tensor values, const char* label) {
  at::Tensor all;
  if (comm.rank() == 0) {
    all = at::empty({comm.size(), values.numel()}, values.options());
  }
  comm.gather(all, values, 0, label)->wait();
  if (all.defined()) {
    for (int rank = 1; rank < comm.size(); ++rank) {
      values.add_(all[rank]);
    }
  }
  comm.broadcast(values, 0, label)->wait();
}

void take_mean(Communicator& comm, at::Tensor values, SumAt sum_at, const char* label) {
  if (sum_at == SumAt::first_rank) {
    sum_at_first_rank(comm, values, label);
  } else {
    comm.all_reduce(values, ReduceOp::sum, label)->wait();
  }
  if (at::isFloatingType(values.scalar_type())) {
    values.div_(comm.size());
  } else {
    values.copy_(at::div(values, comm.size(), "trunc"));
  }
}

}  // namespace

void check_alike(Communicator& comm, ModelArenas& arenas) {
  comm.check_equal(
      "the models or buckets",
      arenas.parameters().layout().describe() + arenas.buffers().layout().describe());
}

void start_alike(Communicator& comm, ModelArenas& arenas) {
  check_alike(comm, arenas);
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

void sync_buffers(Communicator& comm, ModelArenas& arenas, BufferSync how, int root) {
  Arena& buffers = arenas.buffers();
  if (how == BufferSync::broadcast) {
    broadcast_arena(comm, buffers, root);
  } else if (how == BufferSync::average) {
    // Integer buffers are counters, which are already equal.
    for (const auto& range : buffers.layout().ranges()) {
      auto slice = buffers.slice(range);
      if (at::isFloatingType(slice.scalar_type())) {
        take_mean(comm, slice, SumAt::all_ranks, "buffers");
      }
    }
  }
}

void average_state(
    Communicator& comm, ModelArenas& arenas, bool buffers, SumAt sum_at) {
  for (const auto& range : arenas.parameters().layout().trainable_ranges()) {
    take_mean(comm, arenas.parameters().slice(range), sum_at, "average");
  }
  for (const auto& range : arenas.buffers().layout().ranges()) {
    if (buffers) {
      take_mean(comm, arenas.buffers().slice(range), sum_at, "buffers");
    }
  }
}

void gather_parts(Communicator& comm, const Arena& arena) {
  std::vector<WorkPtr> works;
  for (const auto& bucket : arena.layout().buckets()) {
    works.push_back(comm.all_gather(
        arena.slice(bucket.range), arena.slice(bucket.part(comm.rank(), comm.size())),
        arena.name()));
  }
  for (const auto& work : works) {
    work->wait();
  }
}

void broadcast_arena(Communicator& comm, Arena& arena, int root) {
  for (const auto& range : arena.layout().ranges()) {
    if (arena.holds(range.segment)) {
      comm.broadcast(arena.slice(range), root, arena.name())->wait();
    }
  }
}

}  // namespace tandem
