#pragma once

#include <string>

#include "tandem/launch/status/run_status.h"

namespace tandem {

/// Returns the status of a run in the text format of Prometheus, version 0.0.4. A value
/// that is not known yet, such as the loss before the first report, is left out.
std::string metrics_text(const RunStatus& status);

}  // namespace tandem
