#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>

#include "tandem/core/placement.h"

namespace tandem {

/// Returns a simulated device in main memory, for tests on machines without a GPU. The
/// simulated devices are `xpu:0` to `xpu:3`, which no supported LibTorch build
/// provides. For LibTorch and tandem, they differ from the CPU: their tensors have a
/// separate allocator, device guard and operators. The operators give the same bits as
/// on the CPU. The memory of a device is accessible only while an operator of the
/// device runs. So code that uses a tensor's pointer as a pointer to main memory
/// crashes, as with a GPU.
///
/// Only one operator runs at a time. Each thread rank needs its own device. LibTorch
/// computes the gradients of a device in one thread, so ranks that share a device could
/// wait for each other forever.
inline c10::Device far_device(int index) {
  return {c10::DeviceType::XPU, static_cast<c10::DeviceIndex>(index)};
}
inline const c10::Device kFar = far_device(0);
constexpr int kFarDevices = 4;

/// Free memory that each simulated device reports, in bytes. Tests can set it.
inline std::atomic<int64_t> far_free_bytes{int64_t{1} << 30};

/// Memory of each simulated device, in bytes. Tests can set it. An allocation for which
/// this memory is too small throws the error of LibTorch's allocator for CUDA.
inline std::atomic<int64_t> far_capacity_bytes{int64_t{1} << 30};

/// Functions that return the present and the peak memory of a simulated device's
/// tensors, in bytes. The peak counts from the start of the program or from the last
/// forget_far_peak().
int64_t far_bytes_in_use(int index = 0);
int64_t far_peak_bytes(int index = 0);
void forget_far_peak(int index = 0);

/// Duration of each synchronization with a simulated device, in milliseconds.
inline std::atomic<int64_t> far_wait_ms{0};

/// Returns the number of copies from simulated devices to main memory since the start
/// of the program. With a GPU, the CPU waits for each such copy.
int64_t copies_from_far();

/// Returns a placement on a simulated device.
inline Placement far_placement(int index = 0) {
  return {
      far_device(index), [] { return far_free_bytes.load(); },
      [index] { return far_peak_bytes(index); }};
}

}  // namespace tandem
