#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>

#include "tandem/core/placement.h"

namespace tandem {

/// Devices in main memory, for tests on machines without a GPU: `xpu:0` to `xpu:3`,
/// which no supported LibTorch build provides. LibTorch and the library see devices
/// that differ from the CPU: their tensors have a separate allocator, device guard and
/// operators, which compute with the CPU's operators, bit for bit. Their memory is
/// accessible only while one of their operators runs: code that uses a tensor's pointer
/// as a pointer to main memory crashes, as with a GPU.
///
/// Only one operator runs at a time. Thread ranks need a device each: LibTorch computes
/// the gradients of a device in one thread, in which ranks would wait for each other.
inline c10::Device far_device(int index) {
  return {c10::DeviceType::XPU, static_cast<c10::DeviceIndex>(index)};
}
inline const c10::Device kFar = far_device(0);
constexpr int kFarDevices = 4;

/// Free memory that the devices report, in bytes; tests change it.
inline std::atomic<int64_t> far_free_bytes{int64_t{1} << 30};

/// Memory of each device, in bytes; tests change it. A larger allocation throws the
/// error of LibTorch's allocator for CUDA.
inline std::atomic<int64_t> far_capacity_bytes{int64_t{1} << 30};

/// Returns the memory of a device's tensors in bytes: now, and the peak since the
/// program began or forget_far_peak().
int64_t far_bytes_in_use(int index = 0);
int64_t far_peak_bytes(int index = 0);
void forget_far_peak(int index = 0);

/// Time for which the host waits for a device each time that it synchronizes.
inline std::atomic<int64_t> far_wait_ms{0};

/// Returns the number of copies from a device to main memory since the program began:
/// with a GPU the host waits for each.
int64_t copies_from_far();

/// Returns a placement on one of the devices.
inline Placement far_placement(int index = 0) {
  return {
      far_device(index), [] { return far_free_bytes.load(); },
      [index] { return far_peak_bytes(index); }};
}

}  // namespace tandem
