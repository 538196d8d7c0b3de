#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>

#include "tandem/core/placement.h"

namespace tandem {

/// Devices in main memory, for tests on machines without a GPU: `xpu:0` to `xpu:3`,
/// since no LibTorch that we build with has one. For LibTorch and for the library they
/// differ from the CPU: their tensors have an allocator, a device guard and operators
/// of their own, which compute with the CPU's operators, bit for bit. Their memory is
/// accessible only while one of their operators runs: code that uses a tensor's pointer
/// as one to main memory crashes, as with a GPU.
///
/// One operator at a time, of any thread. Ranks that are threads need a device each:
/// LibTorch computes the gradients of a device in one thread, where ranks would wait
/// for each other.
inline c10::Device far_device(int index) {
  return {c10::DeviceType::XPU, static_cast<c10::DeviceIndex>(index)};
}
inline const c10::Device kFar = far_device(0);
constexpr int kFarDevices = 4;

/// Free memory that the devices report; tests change it.
inline std::atomic<int64_t> far_free_bytes{int64_t{1} << 30};

/// Memory of each device; tests change it. A larger allocation throws the error of
/// LibTorch's allocator for CUDA.
inline std::atomic<int64_t> far_capacity_bytes{int64_t{1} << 30};

/// Memory of a device's tensors, now, and at most since the program began or
/// forget_far_peak().
int64_t far_bytes_in_use(int index = 0);
int64_t far_peak_bytes(int index = 0);
void forget_far_peak(int index = 0);

/// Time for which the host waits for a device each time that it synchronizes.
inline std::atomic<int64_t> far_wait_ms{0};

/// Number of copies from a device to main memory since the program began: with a GPU
/// the host waits for each.
int64_t copies_from_far();

/// A run on one of them.
inline Placement far_placement(int index = 0) {
  return {
      far_device(index), [] { return far_free_bytes.load(); },
      [index] { return far_peak_bytes(index); }};
}

}  // namespace tandem
