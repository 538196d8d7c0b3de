#include "tandem/base/log.h"
#include "tandem/comm/backend.h"
#include "tandem/comm/shm/shm.h"

namespace tandem {

std::unique_ptr<Communicator> make_world(
    KindTag<BackendKind::automatic>, const BackendParts& parts) {
  if (!parts.ranks_share_host()) {
    return make_world<BackendKind::shm_gloo>(parts);
  }
  std::string why_not;
  auto comm = try_shm_communicator(
      parts.store, "world", parts.env.rank, parts.env.world_size, shm_options(parts),
      why_not);
  if (comm != nullptr) {
    return comm;
  }
  if (parts.env.rank == 0) {
    log_info("[comm] the ranks use gloo, not shared memory: " + why_not);
  }
  return make_world<BackendKind::gloo>(parts);
}

// The group for tensors in main memory. comm/cuda/nccl.cpp makes the group for tensors
// on GPUs.
std::unique_ptr<Communicator> make_world(
    KindTag<BackendKind::nccl>, const BackendParts& parts) {
  return make_world<BackendKind::automatic>(parts);
}

}  // namespace tandem
