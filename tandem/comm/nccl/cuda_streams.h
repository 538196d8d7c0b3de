#pragma once

#include <memory>

#include "tandem/comm/nccl/streams.h"

namespace tandem {

/// Streams and events of a CUDA device, over CUDA's runtime. Compiled where CUDA's
/// toolkit is, but in no library yet.
///
/// `current_stream`: the calling thread's current stream on that device. LibTorch's is
/// c10::cuda::getCurrentCUDAStream(), which only a LibTorch for CUDA has.
std::shared_ptr<const DeviceStreams> make_cuda_streams(
    int device, std::function<StreamHandle()> current_stream);

}  // namespace tandem
