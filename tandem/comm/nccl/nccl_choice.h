#pragma once

#include <string>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Why these ranks cannot meet over NCCL, which wants a device for each; "" where they
/// can. `device`: of this rank, the same text on no other device of the run. `missing`:
/// why this rank has no NCCL, "" where it has. Collective over `host`, a group for main
/// memory; all ranks get the same.
std::string nccl_obstacle(
    Communicator& host, const std::string& device, const std::string& missing);

}  // namespace tandem
