#include "tandem/comm/nccl/nccl_choice.h"

#include <ATen/ops/full.h>
#include <fmt/core.h>

namespace tandem {

std::string nccl_obstacle(
    Communicator& host, const std::string& device, const std::string& missing) {
  const auto devices = host.stack_digests(device, "devices");
  const auto have = host.stack(at::full({1}, missing.empty(), at::kBool), "NCCL");
  for (int rank = 0; rank < host.size(); ++rank) {
    if (!have[rank].item<bool>()) {
      return host.broadcast_text(missing, rank, "NCCL");
    }
    for (int other = 0; other < rank; ++other) {
      if (devices[rank].equal(devices[other])) {
        return fmt::format("ranks {} and {} share a device", other, rank);
      }
    }
  }
  return "";
}

}  // namespace tandem
