#pragma once

#include <functional>
#include <memory>

#include "tandem/core/device/device_kernels.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem {

/// The kernels of kernels/cuda. `current_stream`: LibTorch's own on the device, asked
/// for each kernel; thread-safe.
std::shared_ptr<const DeviceKernels> make_cuda_kernels(
    std::function<cuda::Stream()> current_stream);

}  // namespace tandem
