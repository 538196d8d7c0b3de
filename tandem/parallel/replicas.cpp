#include "tandem/parallel/replicas.h"

namespace tandem {

void start_alike(
    Communicator& comm, ModelArenas& arenas, const std::vector<Bucket>& buckets) {
  comm.check_equal(
      "the models or bucket plans", arenas.parameters().layout().describe() +
                                        arenas.buffers().layout().describe() +
                                        describe(buckets));
  broadcast_arena(comm, arenas.parameters());
  broadcast_arena(comm, arenas.buffers());
}

void broadcast_arena(Communicator& comm, Arena& arena) {
  for (const auto& range : arena.layout().ranges()) {
    comm.broadcast(arena.slice(range), 0, arena.name())->wait();
  }
}

}  // namespace tandem
