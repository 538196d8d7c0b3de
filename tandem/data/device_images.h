#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/core/arena.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// For batches that are made on a device that is not main memory: where, and the data
/// set's bytes there, if it has room for them. Loaders share it.
struct DeviceImages {
  at::Device device;
  std::shared_ptr<const DeviceKernels> kernels;
  // uint8: the held images, samples x (channels * height * width), and their classes.
  // Undefined where they stay in main memory: then each batch's bytes go up with it.
  at::Tensor pixels;
  at::Tensor labels;

  bool are_there() const {
    return pixels.defined();
  }
};

/// A copy of what the data set holds, unless it would take more than half of what the
/// device has free. Null in main memory, where there is nothing to gain, and where
/// nothing is held.
std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement);

}  // namespace tandem
