#pragma once

#include <c10/core/Device.h>
#include <c10/util/Optional.h>

#include <cstdint>
#include <functional>

namespace tandem {

/// The device on which a rank computes.
struct Placement {
  // None: the model's own device, usually the CPU.
  c10::optional<at::Device> device;
  // Free memory of the device, in bytes. Empty: unknown.
  std::function<int64_t()> free_bytes;
  // Peak memory of the device that this process has reserved, in bytes. Empty: unknown.
  std::function<int64_t()> peak_bytes;

  /// Whether the device is another one than the CPU.
  bool is_elsewhere() const {
    return device && !device->is_cpu();
  }
};

}  // namespace tandem
