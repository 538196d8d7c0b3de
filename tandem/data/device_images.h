#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/core/placement.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Bytes of a data set on a device, from which loaders make their batches there.
/// Loaders share them.
struct DeviceImages {
  // uint8: images, samples x (channels * height * width).
  at::Tensor pixels;
  // uint8: classes of the images.
  at::Tensor labels;
};

/// Copies the images that the data set holds to a device. Returns null if the device is
/// the CPU, if nothing is held, or if the bytes would need more than half of the
/// device's free memory.
std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement);

}  // namespace tandem
