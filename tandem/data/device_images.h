#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/core/placement.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// The bytes of a data set on a device, from which loaders make their batches there.
/// Loaders share it.
struct DeviceImages {
  // uint8: the held images, samples x (channels * height * width).
  at::Tensor pixels;
  // uint8: their classes.
  at::Tensor labels;
};

/// Copies the images that the data set holds. Returns null if the device is the CPU, if
/// nothing is held, or if the bytes would take more than half of the device's free
/// memory.
std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement);

}  // namespace tandem
