#include "tandem/base/rank_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "tests/base/test_tools.h"

namespace tandem::rank_env_test {

using ::testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

std::optional<RankEnv> read(const Environment& environment) {
  return read_rank_env([&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Environment& environment) {
  return error_of<ConfigError>([&] { read(environment); });
}

// Source, rank, world size, local rank, local world size and node rank.
using Place = std::tuple<std::string, int, int, int, int, int>;

Place place_of(const RankEnv& env) {
  return {env.source,           env.rank,     env.world_size, env.local_rank,
          env.local_world_size, env.node_rank};
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) {
    environment[name] = value;
  }
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

const Environment kTorchrun = {{"RANK", "5"},          {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},    {"LOCAL_WORLD_SIZE", "4"},
                               {"GROUP_RANK", "2"},    {"MASTER_ADDR", "node-a"},
                               {"MASTER_PORT", "4567"}};

const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"},
    {"OMPI_COMM_WORLD_SIZE", "6"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

const Environment kSlurm = {
    {"SLURM_PROCID", "7"},       {"SLURM_NTASKS", "10"},
    {"SLURM_LOCALID", "1"},      {"SLURM_NTASKS_PER_NODE", "2"},
    {"SLURM_NODEID", "3"},       {"SLURM_STEP_ID", "0"},
    {"SLURM_JOB_ID", "1234567"}, {"SLURM_NODELIST", "host[5-9]"}};

const Environment kPmi = {
    {"PMI_RANK", "2"},
    {"PMI_SIZE", "4"},
    {"MPI_LOCALRANKID", "1"},
    {"MPI_LOCALNRANKS", "3"}};

TEST(RankEnv, IsEmptyWithoutALauncher) {
  EXPECT_EQ(read({}), std::nullopt);
  EXPECT_EQ(read({{"MASTER_ADDR", "node-a"}, {"PATH", "/bin"}}), std::nullopt);
}

TEST(RankEnv, ReadsTheVariablesOfEachLauncher) {
  EXPECT_EQ(place_of(*read(kTorchrun)), Place("env", 5, 8, 1, 4, 2));
  EXPECT_EQ(place_of(*read(kOpenMpi)), Place("openmpi", 3, 6, 1, 2, 0));
  EXPECT_EQ(place_of(*read(kSlurm)), Place("slurm", 7, 10, 1, 2, 3));
  EXPECT_EQ(place_of(*read(kPmi)), Place("pmi", 2, 4, 1, 3, 0));
}

TEST(RankEnv, ReadsTheAddressOfRank0) {
  const auto env = read(kTorchrun);
  EXPECT_EQ(env->master_addr, "node-a");
  EXPECT_EQ(env->master_port, 4567);
  EXPECT_EQ(env->store, "");
  EXPECT_FALSE(env->agent_store);
}

TEST(RankEnv, NeedsOnlyRankAndWorldSize) {
  const auto env = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(env);
  EXPECT_EQ(place_of(*env), Place("env", 1, 2, 0, 1, 0));
  EXPECT_EQ(env->master_addr, "127.0.0.1");
  EXPECT_EQ(env->master_port, 29500);
}

TEST(RankEnv, DetectsTorchrunsAgentStore) {
  EXPECT_TRUE(
      read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->agent_store);
  EXPECT_FALSE(
      read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->agent_store);
}

TEST(RankEnv, IgnoresOpenMpisRankOnTheNode) {
  EXPECT_EQ(read(with(kOpenMpi, {{"OMPI_COMM_WORLD_NODE_RANK", "1"}}))->node_rank, 0);
}

TEST(RankEnv, SlurmsRanksOnOneNodeAreOnOneHost) {
  auto variables = with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}});
  variables.erase("SLURM_NTASKS_PER_NODE");
  EXPECT_TRUE(is_one_host(*read(variables)));
  variables["SLURM_STEP_NUM_NODES"] = "2";
  EXPECT_FALSE(is_one_host(*read(variables)));
}

TEST(RankEnv, UsesTheFirstHostOfSlurmsNodeList) {
  const auto first_of = [](const std::string& list) {
    return read(with(kSlurm, {{"SLURM_NODELIST", list}}))->master_addr;
  };
  EXPECT_EQ(first_of("host[5-9]"), "host5");
  EXPECT_EQ(first_of("host[05-09,12]"), "host05");
  EXPECT_EQ(first_of("host[7,9-12]"), "host7");
  EXPECT_EQ(first_of("host[3]"), "host3");
  EXPECT_EQ(first_of("host5"), "host5");
  EXPECT_EQ(first_of("alpha,beta,gamma"), "alpha");
  EXPECT_EQ(first_of("alpha,host[5-9]"), "alpha");
  EXPECT_EQ(first_of("host[5-9],alpha"), "host5");
  EXPECT_EQ(first_of("gpu-a-[01-03]"), "gpu-a-01");
}

TEST(RankEnv, UsesTheFirstHostOfSlurmsStep) {
  EXPECT_EQ(
      read(with(kSlurm, {{"SLURM_STEP_NODELIST", "host[7-8]"}}))->master_addr, "host7");
}

int port_of_step(int64_t job, int step) {
  const auto env = read(with(
      kSlurm, {{"SLURM_JOB_ID", std::to_string(job)},
               {"SLURM_STEP_ID", std::to_string(step)}}));
  return env->master_port;
}

TEST(RankEnv, DerivesThePortFromSlurmsJobAndStep) {
  EXPECT_EQ(port_of_step(42, 0), 15000 + 42 * 101);
  EXPECT_EQ(port_of_step(42, 7), 15000 + 42 * 101 + 7);
  EXPECT_EQ(read(without(kSlurm, "SLURM_JOB_ID"))->master_port, 29500);
  // Jobs that run at the same time have similar numbers.
  std::set<int> ports;
  for (int job = 0; job < 160; ++job) {
    for (int step = 0; step < 100; ++step) {
      ports.insert(port_of_step(4294967000 + job, step));
    }
  }
  EXPECT_EQ(ports.size(), 160 * 100);
  EXPECT_GE(*ports.begin(), 15000);
  // Linux's ephemeral ports begin at 32768.
  EXPECT_LT(*ports.rbegin(), 32768);
}

TEST(RankEnv, HasTheLaunchersNameOfTheRun) {
  EXPECT_EQ(read(kSlurm)->run, "slurm job 1234567 step 0");
  EXPECT_EQ(
      read(with(kSlurm, {{"SLURM_STEP_ID", "3"}}))->run, "slurm job 1234567 step 3");
  EXPECT_EQ(read(without(kSlurm, "SLURM_JOB_ID"))->run, "");
  EXPECT_EQ(read(kTorchrun)->run, "");
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "abc"}}))->run, "abc");
  // torchrun's default, the same for all runs.
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}}))->run, "");
  EXPECT_EQ(read(with(kOpenMpi, {{"PMIX_NAMESPACE", "77"}}))->run, "openmpi job 77");
  EXPECT_EQ(read(kOpenMpi)->run, "");
  EXPECT_EQ(read(with(kPmi, {{"PMI_JOBID", "12.0"}}))->run, "pmi job 12.0");
  EXPECT_EQ(read(kPmi)->run, "");
  // A step of SLURM may be a part of a run whose ranks another launcher numbered.
  EXPECT_EQ(read(with(kTorchrun, kSlurm))->run, "");
}

TEST(RankEnv, PrefersMasterVariablesToSlurms) {
  const auto env =
      read(with(kSlurm, {{"MASTER_ADDR", "other"}, {"MASTER_PORT", "777"}}));
  EXPECT_EQ(env->master_addr, "other");
  EXPECT_EQ(env->master_port, 777);
}

TEST(RankEnv, OnlyStepsOfSrunAreRanksOfSlurm) {
  EXPECT_EQ(read(without(kSlurm, "SLURM_STEP_ID")), std::nullopt);
  // A batch script, an interactive step, and the first number that srun does not use.
  for (const auto* special : {"4294967291", "4294967290", "4294967280"}) {
    EXPECT_EQ(read(with(kSlurm, {{"SLURM_STEP_ID", special}})), std::nullopt);
  }
  for (const auto* step : {"0", "1", "4294967279"}) {
    EXPECT_TRUE(read(with(kSlurm, {{"SLURM_STEP_ID", step}}))) << step;
  }
}

// salloc names its job "interactive", and srun names its job after its program.
TEST(RankEnv, TheNameOfSlurmsJobDoesNotMatter) {
  for (const auto* name : {"interactive", "bash", "training"}) {
    EXPECT_TRUE(read(with(kSlurm, {{"SLURM_JOB_NAME", name}}))) << name;
  }
}

TEST(RankEnv, AnInteractiveShellOfSrunIsNotARank) {
  const Environment shell = {{"SLURM_PTY_PORT", "40000"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(read(with(with(kSlurm, shell), {{"SLURM_NTASKS", "1"}})), std::nullopt);
  EXPECT_TRUE(read(with(with(kSlurm, shell), {{"SLURM_NTASKS", "2"}})));
}

TEST(RankEnv, PrefersEnvThenOpenMpiThenSlurmThenPmi) {
  auto all = with(with(with(kTorchrun, kOpenMpi), kSlurm), kPmi);
  EXPECT_EQ(read(all)->source, "env");
  all.erase("RANK");
  EXPECT_EQ(read(all)->source, "openmpi");
  all.erase("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(read(all)->source, "slurm");
  all.erase("SLURM_PROCID");
  EXPECT_EQ(read(all)->source, "pmi");
}

TEST(RankEnv, KeepsTandemsStoreForEveryLauncher) {
  for (const auto& launcher : {kTorchrun, kOpenMpi, kSlurm, kPmi}) {
    const auto env = read(with(launcher, {{"TANDEM_STORE", "unix:/tmp/x/store"}}));
    EXPECT_EQ(env->store, "unix:/tmp/x/store") << env->source;
  }
}

TEST(RankEnv, NamesTheMissingVariable) {
  expect_parts(
      refusal(without(kTorchrun, "WORLD_SIZE")), {"[env]", "WORLD_SIZE", "not set"});
  EXPECT_THAT(
      refusal(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")),
      HasSubstr("OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(refusal(without(kSlurm, "SLURM_NTASKS")), HasSubstr("SLURM_NTASKS"));
  EXPECT_THAT(refusal(without(kPmi, "PMI_SIZE")), HasSubstr("PMI_SIZE"));
  EXPECT_THAT(
      refusal(with(kSlurm, {{"SLURM_STEP_ID", "x"}})),
      HasSubstr("SLURM_STEP_ID is 'x'"));
}

TEST(RankEnv, RejectsAWorldSizeWithoutARank) {
  EXPECT_THAT(
      refusal(without(kTorchrun, "RANK")),
      HasSubstr("RANK is not set, but other variables of a launcher are"));
  // Exported manually for the ranks of another launcher.
  EXPECT_EQ(read(with(kOpenMpi, {{"WORLD_SIZE", "6"}}))->source, "openmpi");
}

TEST(RankEnv, NamesTheMalformedVariable) {
  for (const auto& [name, value] : kTorchrun) {
    if (name == "MASTER_ADDR") {
      continue;
    }
    for (const auto* bad :
         {"", "two", "2x", "1.5", "99999999999999999999", "-1", "1 "}) {
      expect_parts(
          refusal(with(kTorchrun, {{name, bad}})),
          {name + " is '" + bad + "'", "whole number"});
    }
  }
}

TEST(RankEnv, RejectsNumbersOutOfRange) {
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "8"}})), HasSubstr("from 0 to 7"));
  EXPECT_EQ(read(with(kTorchrun, {{"RANK", "7"}}))->rank, 7);
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(
      refusal(with(kTorchrun, {{"MASTER_PORT", "0"}})), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(
      refusal(with(kTorchrun, {{"MASTER_PORT", "65536"}})), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(
      refusal(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "0"}})),
      HasSubstr("LOCAL_WORLD_SIZE"));
  EXPECT_THAT(
      refusal(with(kTorchrun, {{"LOCAL_RANK", "4"}})),
      HasSubstr("LOCAL_RANK is 4, expected 0 to 3 for LOCAL_WORLD_SIZE 4"));
  EXPECT_THAT(
      refusal(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})),
      HasSubstr("LOCAL_WORLD_SIZE is 9, expected at most WORLD_SIZE, which is 8"));
  EXPECT_THAT(
      refusal(with(kTorchrun, {{"MASTER_ADDR", ""}})),
      HasSubstr("MASTER_ADDR is empty"));
}

TEST(RankEnv, RoundTripsThroughVariables) {
  RankEnv env;
  env.rank = 5;
  env.world_size = 8;
  env.local_rank = 1;
  env.local_world_size = 4;
  env.node_rank = 2;
  env.master_addr = "node-a";
  env.master_port = 4567;
  for (const auto* store : {"", "tcp:node-a:4567"}) {
    env.store = store;
    env.run = *store == '\0' ? "" : "abc";
    const auto variables = to_variables(env);
    const auto again = read({variables.begin(), variables.end()});
    ASSERT_TRUE(again);
    EXPECT_EQ(place_of(*again), Place("env", 5, 8, 1, 4, 2));
    EXPECT_EQ(again->master_addr, "node-a");
    EXPECT_EQ(again->master_port, 4567);
    EXPECT_EQ(again->store, store);
    EXPECT_EQ(again->run, env.run);
  }
}

TEST(RankEnv, ReadsTheProcessEnvironment) {
  ASSERT_EQ(setenv("TANDEM_TEST_VARIABLE", "a=b", 1), 0);
  EXPECT_EQ(get_env("TANDEM_TEST_VARIABLE"), "a=b");
  ASSERT_EQ(unsetenv("TANDEM_TEST_VARIABLE"), 0);
  EXPECT_EQ(get_env("TANDEM_TEST_VARIABLE"), std::nullopt);
}

TEST(UsableCpus, IsAtLeastOne) {
  EXPECT_GE(usable_cpus(), 1);
}

TEST(RankEnv, ALoopbackMasterMeansThatAllRanksAreOnThisHost) {
  const Environment here = {
      {"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}};
  EXPECT_EQ(place_of(*read(here)), Place("env", 1, 3, 1, 3, 0));
  const auto elsewhere = read(with(here, {{"MASTER_ADDR", "node-a"}}));
  EXPECT_EQ(place_of(*elsewhere), Place("env", 1, 3, 0, 1, 0));
}

}  // namespace tandem::rank_env_test
