#include "tandem/data/device_images.h"

#include <ATen/ops/from_blob.h>

namespace tandem {

namespace {

at::Tensor copy_of(const Samples& samples, int64_t count, at::Device device) {
  const auto type = samples.type == ElementType::int64 ? at::kLong : at::kByte;
  std::vector<int64_t> sizes = {count};
  if (!samples.shape.empty()) {
    sizes.push_back(samples.numel());
  }
  return at::from_blob(const_cast<uint8_t*>(samples.bytes.data()), sizes, type)
      .to(device);
}

}  // namespace

std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement) {
  const auto held =
      static_cast<int64_t>(data.targets.bytes.size()) / data.targets.sample_bytes();
  const auto bytes =
      static_cast<int64_t>(data.inputs.bytes.size() + data.targets.bytes.size());
  if (!placement.is_elsewhere() || held == 0 ||
      (placement.free_bytes && bytes > placement.free_bytes() / 2)) {
    return nullptr;
  }
  return std::make_shared<DeviceImages>(DeviceImages{
      copy_of(data.inputs, held, *placement.device),
      copy_of(data.targets, held, *placement.device)});
}

}  // namespace tandem
