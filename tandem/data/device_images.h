#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/core/arena.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// A data set's bytes on a device that is not main memory: batches are then made there,
/// and nothing of them goes through main memory. Loaders share it.
struct DeviceImages {
  // uint8: the held images, samples x (channels * height * width), and their classes.
  at::Tensor pixels;
  at::Tensor labels;
  std::shared_ptr<const DeviceKernels> kernels;
};

/// A copy of what the data set holds; null in main memory, where there is nothing to
/// gain, and where it would take more than half of what the device has free.
std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement);

}  // namespace tandem
