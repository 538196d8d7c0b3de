#pragma once

#include <optional>
#include <string>

#include "tandem/config/run_config.h"

namespace tandem {

/// What keeps a run off devices that are not main memory.
struct DeviceObstacle {
  // "a loss scale keeps its state": in main memory only.
  std::string what;
  // "leave out --loss-scale"
  std::string instead;
};

/// The first of a run's, nullopt where it can be on a device. Its precision is settled.
std::optional<DeviceObstacle> device_obstacle(const RunConfig& config);

}  // namespace tandem
