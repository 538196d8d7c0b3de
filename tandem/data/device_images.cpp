#include "tandem/data/device_images.h"

#include <ATen/ops/from_blob.h>

namespace tandem {

namespace {

at::Tensor bytes_on(const Bytes& bytes, at::IntArrayRef sizes, at::Device device) {
  return at::from_blob(const_cast<uint8_t*>(bytes.data()), sizes, at::kByte).to(device);
}

}  // namespace

std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement) {
  const auto held = static_cast<int64_t>(data.labels.size());
  const auto bytes = static_cast<int64_t>(data.pixels.size()) + held;
  if (!placement.is_elsewhere() || held == 0 ||
      (placement.free_bytes && bytes > placement.free_bytes() / 2)) {
    return nullptr;
  }
  return std::make_shared<DeviceImages>(DeviceImages{
      bytes_on(data.pixels, {held, data.image_bytes()}, *placement.device),
      bytes_on(data.labels, {held}, *placement.device)});
}

}  // namespace tandem
