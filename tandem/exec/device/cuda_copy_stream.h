#pragma once

#include <memory>

#include "tandem/core/device/copy_stream.h"

namespace tandem {

/// On CUDA, for the device with this number.
std::unique_ptr<CopyStream> make_cuda_copy_stream(int index);

}  // namespace tandem
