#include <gtest/gtest.h>

#include <map>

#include "app/kubeflow/progress_server.h"

namespace tandem::app::status_test {

using std::chrono::system_clock;

TEST(KubeflowStatus, HasTheFieldsOfTheApi) {
  ProgressStatus status;
  status.percentage = 45;
  status.remaining_seconds = 795000;
  status.metrics = {{"loss", 0.2347}, {"epoch", 2}};
  EXPECT_EQ(
      status_json(status, system_clock::from_time_t(1737628245)),
      R"({"trainerStatus":{"progressPercentage":45,"estimatedRemainingSeconds":795000,)"
      R"("metrics":[{"name":"epoch","value":"2"},{"name":"loss","value":"0.2347"}],)"
      R"("lastUpdatedTime":"2025-01-23T10:30:45Z"}})");
}

TEST(KubeflowStatus, OmitsAnUnknownRemainingTime) {
  const auto text = status_json({}, system_clock::from_time_t(0));
  EXPECT_EQ(
      text, R"({"trainerStatus":{"progressPercentage":0,"metrics":[],)"
            R"("lastUpdatedTime":"1970-01-01T00:00:00Z"}})");
}

TEST(KubeflowServer, IsNamedByTheEnvironmentOfThePod) {
  std::map<std::string, std::string> variables;
  const auto get = [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  EXPECT_FALSE(find_progress_server(get));
  variables["KUBEFLOW_TRAINER_SERVER_URL"] = "";
  EXPECT_FALSE(find_progress_server(get));
  variables = {
      {"KUBEFLOW_TRAINER_SERVER_URL", "https://server/status"},
      {"KUBEFLOW_TRAINER_SERVER_TOKEN", "/token"},
      {"KUBEFLOW_TRAINER_SERVER_CA_CERT", "/ca.crt"}};
  const auto server = find_progress_server(get);
  ASSERT_TRUE(server);
  EXPECT_EQ(server->url, "https://server/status");
  EXPECT_EQ(server->token_file, "/token");
  EXPECT_EQ(server->ca_file, "/ca.crt");
}

}  // namespace tandem::app::status_test
