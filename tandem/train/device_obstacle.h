#pragma once

#include <string>

#include "tandem/config/run_config.h"

namespace tandem {

/// Why a run cannot be on devices that are not main memory, "" where it can.
std::string device_obstacle(const RunConfig& config);

/// Why a GPU of that compute capability, "7.5", cannot compute in `precision`, and what
/// to change; "" where it can.
std::string precision_obstacle(Precision precision, const std::string& capability);

}  // namespace tandem
