#pragma once

#include <functional>
#include <memory>

#include "tandem/core/device/device_kernels.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem {

/// What the kernels ask of the device that they run on; thread-safe.
struct CudaHost {
  // LibTorch's current stream there, for each kernel.
  std::function<cuda::Stream()> current_stream;
  std::function<int64_t()> free_bytes;
};

/// The kernels of kernels/cuda.
std::shared_ptr<const DeviceKernels> make_cuda_kernels(CudaHost host);

}  // namespace tandem
