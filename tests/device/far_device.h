#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "tandem/core/device/device_kernels.h"

namespace tandem {

/// A device in main memory, for tests on machines without a GPU. To LibTorch and to the
/// library it is another device (`xpu:0`, which no LibTorch that we build with has):
/// its tensors go through an allocator, a device guard and operators of its own, which
/// compute with those of the CPU, bit for bit. Its memory can be touched only while one
/// of its operators or kernels runs: code that takes a tensor's pointer for one of main
/// memory ends there, as it would on a GPU.
///
/// One thread at a time.
inline const c10::Device kFar(c10::DeviceType::XPU, 0);

/// The kernels of kernels/cuda on it, run by the emulator (tests/cuda/emulator).
std::shared_ptr<const DeviceKernels> far_kernels();

/// How often something was copied from the device to main memory since the program
/// began: on a GPU the host waits for each.
int64_t copies_from_far();

}  // namespace tandem
