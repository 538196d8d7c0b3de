#pragma once

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Returns a group that communicates tensors in main memory and on devices such as
/// GPUs.
///
/// Tensors in main memory are sent over `host`, tensors on a device over `on_device`
/// (comm/cuda/nccl.h). If `on_device` is null, tensors on a device are copied to main
/// memory and sent over `host`. An operation then waits for the device when it copies
/// from the device, at its start, or to the device, in wait(). The device may be of any
/// type, and ranks may share it.
///
/// Both groups must have the same ranks in the same order. device() of the result is
/// the CPU.
std::unique_ptr<Communicator> make_device_communicator(
    std::unique_ptr<Communicator> host,
    std::unique_ptr<Communicator> on_device = nullptr);

}  // namespace tandem
