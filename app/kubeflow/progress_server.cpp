#include "app/kubeflow/progress_server.h"

namespace tandem::app {

std::optional<ProgressServer> find_progress_server(const GetEnv& get) {
  ProgressServer server;
  server.url = get("KUBEFLOW_TRAINER_SERVER_URL").value_or("");
  server.token_file = get("KUBEFLOW_TRAINER_SERVER_TOKEN").value_or("");
  server.ca_file = get("KUBEFLOW_TRAINER_SERVER_CA_CERT").value_or("");
  return server.url.empty() ? std::nullopt : std::optional(server);
}

}  // namespace tandem::app
