#pragma once

#include <ATen/core/Tensor.h>

#include "tandem/core/device/device_kernels.h"

namespace tandem {

/// Copies from main memory to `to`, int64 on a device, as many bytes as it has. The
/// host waits for nothing where `kernels` has memory for that; `from` may change at
/// once. `kernels`: that device's, or null.
void upload(const void* from, const at::Tensor& to, const DeviceKernels* kernels);

}  // namespace tandem
