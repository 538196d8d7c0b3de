#pragma once

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// A group whose ranks compute on devices: tensors in main memory go over `host`, those
/// on a device over `on_device` (comm/cuda/nccl.h), or, where that is null, through
/// main memory and `host`: the caller then waits for its device at the start of an
/// operation and again in wait(). That works for any device, also for one that ranks
/// share.
///
/// Both groups have the same ranks in the same order. device() is main memory.
std::unique_ptr<Communicator> make_device_communicator(
    std::unique_ptr<Communicator> host,
    std::unique_ptr<Communicator> on_device = nullptr);

}  // namespace tandem
