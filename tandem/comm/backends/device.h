#pragma once

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Returns a group whose ranks compute on devices.
///
/// Tensors in main memory are sent over `host`, tensors on a device over `on_device`
/// (comm/cuda/nccl.h). If `on_device` is null, tensors on a device are copied through
/// main memory and sent over `host`; the caller then waits for its device at the start
/// of an operation and again in wait(). Any device works, even if ranks share it.
///
/// Both groups have the same ranks in the same order. device() is main memory.
std::unique_ptr<Communicator> make_device_communicator(
    std::unique_ptr<Communicator> host,
    std::unique_ptr<Communicator> on_device = nullptr);

}  // namespace tandem
