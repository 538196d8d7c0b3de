#include "tandem/comm/join/join.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/comm/stranger.h"
#include "tests/core/expect.h"

namespace tandem::join_test {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::MatchesRegex;

RankEnv env_of(int rank, int world_size) {
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = world_size;
  return env;
}

CommOptions patient() {
  CommOptions options;
  options.timeout_seconds = 10;
  return options;
}

// Returns a port that was free a moment ago.
int free_port() {
  const StoreServer probe("tcp:127.0.0.1:0");
  return std::stoi(probe.address().substr(probe.address().rfind(':') + 1));
}

// Joins with all environments concurrently, and sums 1, 2, 4, ... over the group.
// Returns each rank's sum or error.
std::vector<std::string> join_all(const std::vector<RankEnv>& envs) {
  std::vector<std::string> results(envs.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < envs.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const JoinedRun run = join_run(envs[i], patient());
        auto sum = at::full({1}, 1 << run.comm->rank(), at::kInt);
        run.comm->all_reduce(sum)->wait();
        results[i] = run.comm->backend() + " " + std::to_string(sum.item<int>());
      } catch (const std::exception& error) {
        results[i] = error.what();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return results;
}

TEST(JoinRun, OneRankNeedsNoStore) {
  const JoinedRun run = join_run(env_of(0, 1), patient());
  EXPECT_EQ(run.comm->size(), 1);
  EXPECT_EQ(run.store, nullptr);
  EXPECT_EQ(run.server, nullptr);
}

// A program can join a second run with the same variable.
TEST(JoinRun, AssignmentLeavesTheFirstRun) {
  const StoreServer server("tcp:127.0.0.1:0");
  RankEnv env = env_of(0, 1);
  env.store = server.address();
  JoinedRun run = join_run(env, patient());
  EXPECT_NE(run.store, nullptr);
  run = join_run(env_of(0, 1), patient());
  EXPECT_EQ(run.store, nullptr);
  EXPECT_EQ(run.comm->size(), 1);
  StoreClient client(server.address(), milliseconds(1'000));
  EXPECT_EQ(client.get("left/0", milliseconds(1'000)), "1");
}

TEST(JoinRun, RanksMeetInTheLaunchersStore) {
  const std::string directory = make_private_directory();
  {
    const StoreServer server("unix:" + directory + "/store");
    std::vector<RankEnv> envs;
    for (int rank = 0; rank < 3; ++rank) {
      envs.push_back(env_of(rank, 3));
      envs.back().store = server.address();
    }
    EXPECT_THAT(join_all(envs), Each("shm 7"));
  }
  remove_all(directory);
}

TEST(JoinRun, WithoutALauncherRank0ServesTheStore) {
  std::vector<RankEnv> envs = {env_of(1, 2), env_of(0, 2)};
  envs[0].master_port = envs[1].master_port = free_port();
  EXPECT_THAT(join_all(envs), Each("shm 3"));
}

// Two steps of a job that inherited one MASTER_PORT.
TEST(JoinRun, RanksOfTwoRunsRejectEachOtherByName) {
  std::vector<RankEnv> envs = {env_of(0, 2), env_of(1, 2)};
  envs[0].run = "slurm job 12 step 0";
  envs[1].run = "slurm job 12 step 1";
  envs[0].master_port = envs[1].master_port = free_port();
  EXPECT_THAT(
      join_all(envs), Each(AllOf(
                          HasSubstr("run 'slurm job 12 step 0'"),
                          HasSubstr("run 'slurm job 12 step 1'"),
                          HasSubstr("use a different MASTER_PORT for each run"))));
}

// Programs that only have RANK and WORLD_SIZE have a run without a name.
TEST(JoinRun, ASecondRankOfTheSameNumberIsRejected) {
  const StoreServer server("tcp:127.0.0.1:0");
  StoreClient other(server.address(), milliseconds(10'000));
  auto greeting = greeting_of(Greeting::Role::rank, 1, 2, "auto");
  greeting.identity = "another process";
  other.greet(greeting);
  RankEnv env = env_of(1, 2);
  env.store = server.address();
  EXPECT_THAT(
      error_of<ConfigError>([&] { return join_run(env, patient()); }),
      HasSubstr("rank 1 has joined twice"));
}

TEST(JoinRun, UnderTorchrunRanksUseAPortAfterTheAgents) {
  // Another store, like that of the agent: it answers, but rejects these ranks.
  const StoreServer agent("tcp:127.0.0.1:0", "the agent's");
  std::vector<RankEnv> envs = {env_of(0, 2), env_of(1, 2)};
  for (auto& env : envs) {
    env.agent_store = true;
    env.master_port = std::stoi(agent.address().substr(agent.address().rfind(':') + 1));
  }
  EXPECT_THAT(join_all(envs), Each("shm 3"));
}

TEST(JoinRun, TimeoutNamesTheMissingRank) {
  CommOptions options;
  options.timeout_seconds = 0.4;
  const auto start = std::chrono::steady_clock::now();
  for (const auto backend : {BackendKind::shm, BackendKind::shm_gloo}) {
    RankEnv env = env_of(0, 2);
    env.master_port = free_port();
    options.backend = backend;
    EXPECT_THAT(
        error_of<CommError>([&] { return join_run(env, options); }),
        MatchesRegex(
            ".*: rank 1 of 2 did not arrive within 0.[0-9]+ s; start every rank, or "
            "raise --timeout-seconds"));
  }
  // The store does not wait for it to leave either.
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(3'000));
}

TEST(JoinRun, GlooFormationIsTriedThreeTimes) {
  const StoreServer server("tcp:127.0.0.1:0");
  StoreClient client(server.address(), milliseconds(10'000));
  auto message = std::async(std::launch::async, [&] {
    RankEnv env = env_of(0, 2);
    env.store = server.address();
    CommOptions options;
    options.backend = BackendKind::gloo;
    options.timeout_seconds = 1.5;
    return error_of<CommError>([&] { return join_run(env, options); });
  });
  Stranger stranger(client, "world");
  for (int attempt = 0; attempt < 3; ++attempt) {
    stranger.fail(attempt);
  }
  EXPECT_THAT(message.get(), HasSubstr("3 attempts failed"));
}

TEST(JoinRun, TheThreadBackendIsRejectedBeforeMeeting) {
  CommOptions options = patient();
  options.backend = BackendKind::thread;
  EXPECT_THAT(
      error_of<ConfigError>([&] { return join_run(env_of(1, 2), options); }),
      HasSubstr("--rank-type thread"));
  EXPECT_THROW(join_run(env_of(0, 1), options), ConfigError);
}

}  // namespace tandem::join_test
