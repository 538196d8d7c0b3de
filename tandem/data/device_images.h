#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/core/placement.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// A data set's images and labels on a device. Loaders share them and make their
/// batches on that device.
struct DeviceImages {
  // Images: uint8, samples x (channels * height * width).
  at::Tensor pixels;
  // Classes of the images: uint8 or int64, one per sample.
  at::Tensor labels;
};

/// Copies the images and labels of a data set to a device. The data set must have
/// images and one class per sample. Returns null if the device
/// is the CPU or the data set contains no samples. Also returns null if the bytes would
/// need more than half of the device's free memory.
std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement);

}  // namespace tandem
