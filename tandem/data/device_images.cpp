#include "tandem/data/device_images.h"

#include <ATen/ops/from_blob.h>

#include "tandem/core/device/device_kernels.h"

namespace tandem {

namespace {

at::Tensor bytes_on(const Bytes& bytes, at::IntArrayRef sizes, at::Device device) {
  return at::from_blob(const_cast<uint8_t*>(bytes.data()), sizes, at::kByte).to(device);
}

}  // namespace

std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement) {
  if (!placement.device || placement.device->is_cpu() || placement.kernels == nullptr) {
    return nullptr;
  }
  const auto held = static_cast<int64_t>(data.labels.size());
  const auto bytes = static_cast<int64_t>(data.pixels.size()) + held;
  if (held == 0) {
    return nullptr;
  }
  const at::Device device = *placement.device;
  auto images =
      std::make_shared<DeviceImages>(DeviceImages{device, placement.kernels, {}, {}});
  if (bytes <= placement.kernels->free_bytes() / 2) {
    images->pixels = bytes_on(data.pixels, {held, data.image_bytes()}, device);
    images->labels = bytes_on(data.labels, {held}, device);
  }
  return images;
}

}  // namespace tandem
