// RPC and the parameter server between processes, over shared memory and over TCP.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <tuple>

#include "tests/program/program.h"
#include "workers.h"

namespace tandem::rpc_test {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;

// With the backend by which ranks meet.
class RpcBetweenProcesses : public testing::TestWithParam<const char*> {
 protected:
  static CommandResult rpc_ranks(
      const std::string& ranks, const std::vector<std::string>& words) {
    return tandem_run(with(
        {"launch", "--nproc", ranks, "--", program("rpc_ranks"), GetParam()}, words));
  }
};

INSTANTIATE_TEST_SUITE_P(
    Over, RpcBetweenProcesses, testing::Values("shm", "gloo"),
    [](const auto& backend) { return std::string(backend.param); });

TEST_P(RpcBetweenProcesses, ProcessesCallEachOtherBothWaysAndEndQuietly) {
  const auto result = checked(rpc_ranks("3", {"call"}));
  EXPECT_EQ(result.output, "[rank 0] all called\n");
  EXPECT_THAT(result.errors, IsEmpty());
}

TEST_P(RpcBetweenProcesses, AKilledPeerIsNamed) {
  const auto server = rpc_ranks("3", {"gone", "0"});
  expect_parts(server.output, {"rank 1 lost rank 0: ", "rank 2 lost rank 0: "});
  // A rank that only waits for requests notices it too.
  const auto worker = rpc_ranks("2", {"gone", "1"});
  EXPECT_THAT(worker.output, HasSubstr("rank 0 lost rank 1: "));
}

TEST_P(RpcBetweenProcesses, WaitsEndAtTheTimeout) {
  const auto result = rpc_ranks("2", {"late"});
  expect_parts(
      result.output, {"rank 0: [comm] a request of another rank",
                      "rank 1: [comm] the answer of rank 0"});
}

TEST_P(RpcBetweenProcesses, StalenessReachesItsBoundAndNoMore) {
  const int64_t bound = 3;
  const auto result = checked(rpc_ranks("4", {"slow", "3", "20"}));
  std::istringstream words(result.output.substr(result.output.find(']') + 1));
  std::vector<int64_t> staleness;
  for (int64_t one = 0; words >> one;) {
    staleness.push_back(one);
  }
  ASSERT_EQ(staleness.size(), 60u);
  EXPECT_THAT(staleness, Each(AllOf(Ge(0), Le(bound))));
  EXPECT_EQ(*std::max_element(staleness.begin(), staleness.end()), bound);
}

std::vector<std::string> server_run(
    const std::string& out, const Arguments& more, const std::string& epochs = "2",
    const std::string& ranks = "3") {
  return with(
      {"train", "--strategy", "parameter_server", "--model", "convnet", "--limit",
       "1280", "--epochs", epochs, "--schedule", "step", "--nproc", ranks, "--out",
       out},
      more);
}

TEST(ParameterServerProgram, SynchronousProcessesGiveTheBitsOfDataParallelThreads) {
  const Scratch scratch;
  // A server and three workers.
  const auto result = run_ok(server_run(scratch / "server", {}, "2", "4"));
  EXPECT_THAT(result.output, HasSubstr("4 ranks over shm"));
  run_ok(server_run(scratch / "tcp", {"--backend", "gloo"}, "2", "4"));
  EXPECT_EQ(hash_of(scratch / "tcp"), hash_of(scratch / "server"));
  const auto replicas = run_ok(
      {"train", "--model", "convnet", "--limit", "1280", "--epochs", "2", "--schedule",
       "step", "--nproc", "3", "--rank-type", "thread", "--out", scratch / "replicas"});
  EXPECT_EQ(hash_of(scratch / "server").size(), 64u);
  EXPECT_EQ(hash_of(scratch / "server"), hash_of(scratch / "replicas"));
  EXPECT_EQ(
      json_value(scratch / "server/summary.json", "test_accuracy"),
      json_value(scratch / "replicas/summary.json", "test_accuracy"));
}

TEST(ParameterServerProgram, ResumingChangesNoBit) {
  const Scratch scratch;
  const auto whole = scratch / "whole";
  const auto parts = scratch / "parts";
  // Step 13 is in the middle of the second epoch of 10 steps.
  run_ok(server_run(whole, {"--checkpoint-every", "13"}));
  run_ok(server_run(parts, {"--resume", whole + "/checkpoints/step-00000013"}));
  EXPECT_EQ(hash_of(whole), hash_of(parts));
}

TEST(ParameterServerProgram, AsynchronousTrainsAndReportsStaleness) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto result = run_ok(server_run(
      out, {"--server-updates", "asynchronous", "--max-staleness", "2",
            "--checkpoint-every", "7"}));
  expect_parts(
      result.errors,
      {"staleness of the server's updates: at most ", "of 2 steps allowed"});
  EXPECT_GT(json_number(out + "/summary.json", "test_accuracy"), 40);
  EXPECT_EQ(json_number(out + "/summary.json", "steps"), 20);
  run_ok(
      server_run(out, {"--server-updates", "asynchronous", "--resume", "auto"}, "3"));
  EXPECT_EQ(json_number(out + "/summary.json", "steps"), 30);
}

// The name of a worker process, such as "tandem-rank-1".
std::string name_of_process(pid_t pid) {
  const auto name = read_file("/proc/" + std::to_string(pid) + "/comm");
  return name.substr(0, name.find('\n'));
}

// A backend, and the rank that is killed.
class KilledServerRun
    : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(KilledServerRun, EndsWithOneClearLine) {
  const auto [backend, rank] = GetParam();
  const Scratch scratch;
  const auto out = scratch / "run";
  CommandResult result;
  std::thread run([&, name = backend] {
    result = tandem_run(server_run(
        out,
        {"--server-updates", "asynchronous", "--grace-seconds", "5", "--backend", name},
        "2000"));
  });
  wait_until_it_reports(out);
  pid_t killed = 0;
  for (const pid_t pid : workers_of(out)) {
    if (name_of_process(pid) == "tandem-rank-" + std::string(rank)) {
      killed = pid;
      kill(pid, SIGKILL);
    }
  }
  run.join();
  EXPECT_GT(killed, 0);
  expect_exit(
      result, 1,
      {"rank " + std::string(rank), "killed by SIGKILL", std::to_string(killed)});
  // One line, not an error of each rank.
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1)
      << result.errors;
  EXPECT_TRUE(workers_of(out).empty());
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, KilledServerRun,
    testing::Combine(testing::Values("shm", "gloo"), testing::Values("0", "2")),
    [](const auto& run) {
      return std::string(std::get<0>(run.param)) + "Rank" + std::get<1>(run.param);
    });

TEST(ParameterServerProgram, InvalidSettingsAreOneLine) {
  const auto alone = tandem_run({"train", "--strategy", "parameter_server"});
  expect_exit(alone, 2, {"use --nproc 2 or more"});
}

}  // namespace tandem::rpc_test
