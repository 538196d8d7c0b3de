#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "tandem/base/rank_env.h"

namespace tandem::app {

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

/// Posts a status (status.h) within `timeout`. If `abandoned` returns true, ends within
/// about a second. Returns "" on success, otherwise the reason of the failure, such as
/// "answered 403". Thread-safe.
std::string post_status(
    const ProgressServer& server, const std::string& body,
    std::chrono::milliseconds timeout, const std::function<bool()>& abandoned);

}  // namespace tandem::app
