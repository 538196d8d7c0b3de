#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tandem::app {

/// Progress of a run, which `kubectl get trainjob` shows.
struct ProgressStatus {
  // Completed part of the run in percent, from 0 to 100.
  int percentage = 0;
  // Estimate, in seconds; nullopt if it is not known.
  std::optional<int64_t> remaining_seconds;
  // Values by name, such as "loss".
  std::map<std::string, double> metrics;
};

/// Returns the body of a request of Kubeflow Trainer's API: an
/// UpdateTrainJobStatusRequest of trainer.kubeflow.org/v1alpha1. `now` is the time of
/// the status.
std::string status_json(
    const ProgressStatus& status, std::chrono::system_clock::time_point now);

}  // namespace tandem::app
