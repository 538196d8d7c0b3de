#include "tandem/launch/host_attempt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/test_tools.h"

namespace tandem::elastic_variables_test {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

RankEnv rank_5_of_6() {
  RankEnv env;
  env.rank = 5;
  env.world_size = 6;
  env.local_rank = 2;
  env.local_world_size = 3;
  env.node_rank = 1;
  return env;
}

TEST(ElasticVariables, DescribeTheRoleAndTheRun) {
  TorchrunOptions options;
  options.role = "trainer";
  const auto variables = elastic_variables(options, rank_5_of_6());
  EXPECT_THAT(
      variables, IsSupersetOf(Variables{
                     {"ROLE_NAME", "trainer"},
                     {"ROLE_RANK", "5"},
                     {"ROLE_WORLD_SIZE", "6"},
                     {"GROUP_WORLD_SIZE", "2"},
                     {"TORCHELASTIC_RUN_ID", "none"},
                     {"TORCHELASTIC_USE_AGENT_STORE", "False"}}));
  EXPECT_THAT(variables, Not(Contains(Key("LOCAL_RANK"))));
}

TEST(ElasticVariables, GiveAVirtualLocalRankItsOwnGpu) {
  TorchrunOptions options;
  options.virtual_local_rank = true;
  const auto with_gpus = [&](std::optional<std::string> gpus) {
    return elastic_variables(
        options, rank_5_of_6(), [&](const std::string&) { return gpus; });
  };
  const auto all = with_gpus(std::nullopt);
  EXPECT_THAT(all, Contains(Pair("LOCAL_RANK", "0")));
  EXPECT_THAT(all, Contains(Pair("CUDA_VISIBLE_DEVICES", "2")));
  EXPECT_THAT(with_gpus("4,5,7"), Contains(Pair("CUDA_VISIBLE_DEVICES", "7")));
  expect_error<ConfigError>(
      [&] { with_gpus("4,5"); },
      {"CUDA_VISIBLE_DEVICES is '4,5', expected a GPU for local rank 2"});
}

}  // namespace tandem::elastic_variables_test
