#pragma once

#include <functional>
#include <memory>

#include "tandem/core/device/device_graph.h"

namespace tandem {

/// DeviceKernels::capture() on CUDA: what `work` puts in the calling thread's current
/// stream, which is not CUDA's default one. By LibTorch's own class, whose allocator
/// gives a capture memory of its own and whose generators count what a graph draws.
std::unique_ptr<DeviceGraph> capture_cuda_graph(const std::function<void()>& work);

}  // namespace tandem
