#pragma once

#include <c10/core/Device.h>
#include <c10/util/Optional.h>

#include <cstdint>
#include <functional>

namespace tandem {

/// The device on which a rank computes.
struct Placement {
  // Device of the rank. If it is not set, the model stays on its device, usually the
  // CPU.
  c10::optional<at::Device> device;
  // Returns the free memory of the device, in bytes. Empty: unknown.
  std::function<int64_t()> free_bytes;
  // Returns the peak memory that this process has reserved on the device, in bytes.
  // Empty: unknown.
  std::function<int64_t()> peak_bytes;

  /// Returns whether a device other than the CPU is set.
  bool is_elsewhere() const {
    return device && !device->is_cpu();
  }
};

}  // namespace tandem
