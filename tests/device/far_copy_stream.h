#pragma once

#include <memory>

#include "tandem/core/device/copy_stream.h"

namespace tandem {

/// Copies to a device in main memory (far_device.h). They run at once; but a copy to a
/// place that was not released since the last one, or before a kernel had read it, is
/// an error: on a GPU it could change what that kernel reads.
std::unique_ptr<CopyStream> make_far_copy_stream();

}  // namespace tandem
