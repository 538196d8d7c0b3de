#include "app/kubeflow/progress_server.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace tandem::app {

std::string status_json(
    const ProgressStatus& status, std::chrono::system_clock::time_point now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  nlohmann::ordered_json trainer;
  trainer["progressPercentage"] = status.percentage;
  if (status.remaining_seconds) {
    trainer["estimatedRemainingSeconds"] = *status.remaining_seconds;
  }
  trainer["metrics"] = nlohmann::ordered_json::array();
  for (const auto& [name, value] : status.metrics) {
    // The API requires values as text.
    trainer["metrics"].push_back(
        {{"name", name}, {"value", fmt::format("{:.6g}", value)}});
  }
  trainer["lastUpdatedTime"] =
      fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds));
  return nlohmann::ordered_json{{"trainerStatus", trainer}}.dump();
}

std::optional<ProgressServer> find_progress_server(const GetEnv& get) {
  ProgressServer server;
  server.url = get("KUBEFLOW_TRAINER_SERVER_URL").value_or("");
  server.token_file = get("KUBEFLOW_TRAINER_SERVER_TOKEN").value_or("");
  server.ca_file = get("KUBEFLOW_TRAINER_SERVER_CA_CERT").value_or("");
  return server.url.empty() ? std::nullopt : std::optional(server);
}

}  // namespace tandem::app
