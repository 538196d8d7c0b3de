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
  // As of DeviceKernels; `capture` may be missing.
  std::function<at::Tensor(int64_t count)> host_words;
  std::function<std::unique_ptr<CopyStream>()> copy_stream;
  std::function<std::unique_ptr<DeviceGraph>(const std::function<void()>& work)>
      capture;
};

/// The kernels of kernels/cuda.
std::shared_ptr<const DeviceKernels> make_cuda_kernels(CudaHost host);

}  // namespace tandem
