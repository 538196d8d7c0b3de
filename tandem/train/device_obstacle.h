#pragma once

#include <string>

#include "tandem/config/run_config.h"

namespace tandem {

/// Why a run cannot be on devices that are not main memory, "" where it can.
std::string device_obstacle(const RunConfig& config);

}  // namespace tandem
