#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/status/run_status.h"

namespace tandem {

/// Converts statuses of ranks to a JSON array and back. statuses_from_json() returns no
/// statuses if the text has another form, because any process of a run can write it.
std::string to_json(const std::vector<RankStatus>& statuses);
std::vector<RankStatus> statuses_from_json(const std::string& text);

/// Converts the status of a run to a JSON object and back. run_status_from_json()
/// returns nullopt if the text has another form.
std::string to_json(const RunStatus& status);
std::optional<RunStatus> run_status_from_json(const std::string& text);

}  // namespace tandem
