#include "tandem/data/target_scale.h"

#include <ATen/ops/tensor.h>
#include <fmt/core.h>

#include "tandem/base/error.h"

namespace tandem {

namespace {

// Returns numbers of the first size of a target as a tensor that is broadcast.
at::Tensor broadcast(
    const std::vector<double>& numbers, const std::vector<int64_t>& target) {
  std::vector<int64_t> sizes(std::max<size_t>(1, target.size()), 1);
  sizes[0] = -1;
  return at::tensor(numbers, at::kFloat).view(sizes);
}

}  // namespace

TargetScale::TargetScale(
    const std::vector<double>& mean, const std::vector<double>& std,
    const Dataset& data) {
  if (mean == std::vector<double>{0} && std == std::vector<double>{1}) {
    return;
  }
  if (data.has_classes()) {
    throw ConfigError(
        "[data] --target-mean or --target-std is set, but the targets of '" +
        data.name + "' are classes, expected numbers; leave both out");
  }
  const auto& shape = data.targets.shape;
  const size_t slices = shape.empty() ? 1 : static_cast<size_t>(shape[0]);
  for (const size_t count : {mean.size(), std.size()}) {
    if (count != 1 && count != slices) {
      throw ConfigError(fmt::format(
          "[data] there are {} target means and {} target standard deviations, "
          "expected {} of each for targets of the shape {}; change --target-mean and "
          "--target-std",
          mean.size(), std.size(), slices == 1 ? "1" : fmt::format("1 or {}", slices),
          shape_text(shape)));
    }
  }
  mean_ = broadcast(mean, shape);
  std_ = broadcast(std, shape);
}

void TargetScale::normalize(const at::Tensor& targets) const {
  if (mean_.defined()) {
    targets.sub_(mean_).div_(std_);
  }
}

at::Tensor TargetScale::restore(const at::Tensor& outputs) const {
  if (!mean_.defined()) {
    return outputs;
  }
  const auto options = outputs.options();
  return outputs.mul(std_.to(options)).add_(mean_.to(options));
}

}  // namespace tandem
