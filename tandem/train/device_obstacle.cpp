#include "tandem/train/device_obstacle.h"

#include <fmt/core.h>

namespace tandem {

std::optional<DeviceObstacle> device_obstacle(const RunConfig& config) {
  if (config.exec.loss_scale != ExecOptions::kNoScale) {
    return DeviceObstacle{"a loss scale keeps its state", "leave out --loss-scale"};
  }
  const Precision precision = config.exec.precision;
  if (precision == Precision::bf16 || precision == Precision::fp16) {
    return DeviceObstacle{
        fmt::format("precision {} is computed", name_of(precision)),
        "use --precision fp32"};
  }
  if (has_trait(config.strategy.kind, kSharesParameters)) {
    return DeviceObstacle{
        fmt::format("ranks of {} share parameters", name_of(config.strategy.kind)),
        "use --strategy data_parallel"};
  }
  return std::nullopt;
}

}  // namespace tandem
