#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tandem/base/rank_env.h"

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

/// The server of Kubeflow Trainer that accepts the progress of a TrainJob.
struct ProgressServer {
  // URL of the status of the TrainJob.
  std::string url;
  // Path of the file with the token of the pod's service account; "": no token. The
  // cluster replaces the token before it expires.
  std::string token_file;
  // Path of the certificates that may sign the server's certificate; "": the
  // certificates of this system.
  std::string ca_file;
};

/// Returns the server that Kubeflow Trainer names in the environment of a pod, nullopt
/// if KUBEFLOW_TRAINER_SERVER_URL is not set or is empty.
std::optional<ProgressServer> find_progress_server(const GetEnv& get = get_env);

/// Posts a status (status_json()) within `timeout`. If `abandoned` returns true, ends
/// within about a second. Returns "" on success, otherwise the reason of the failure,
/// such as "answered 403". Thread-safe.
std::string post_status(
    const ProgressServer& server, const std::string& body,
    std::chrono::milliseconds timeout, const std::function<bool()>& abandoned);

}  // namespace tandem::app
