// torchrun's PET_ variables, the only variables that Kubeflow's trainer sets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tests/program/program.h"

namespace tandem::torchrun_variables_test {

using testing::HasSubstr;
using testing::StartsWith;

const std::vector<std::string> kEcho = {
    "sh", "-c", "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"};

CommandResult launch(const Variables& variables, const Arguments& flags = {}) {
  return tandem_run(with({"launch"}, flags, kEcho), variables);
}

const Variables kSecondHost = {
    {"PET_NNODES", "2"},
    {"PET_NPROC_PER_NODE", "2"},
    {"PET_NODE_RANK", "1"},
    {"PET_MASTER_ADDR", "127.0.0.1"},
    {"PET_MASTER_PORT", "4567"}};

TEST(TorchrunVariables, AreDefaultsOfTheFlagsOfLaunch) {
  const auto result = launch(kSecondHost);
  EXPECT_EQ(
      sorted_lines(result.output),
      (std::vector<std::string>{
          "[rank 2] 2 of 4 at 127.0.0.1:4567", "[rank 3] 3 of 4 at 127.0.0.1:4567"}));
  EXPECT_THAT(
      result.errors,
      StartsWith("tandem: [launch] 4 ranks: 2 on each of 2 hosts, this is host 1 "
                 "(PET_NPROC_PER_NODE=2, PET_NNODES=2, PET_NODE_RANK=1, "));
}

TEST(TorchrunVariables, AreOverriddenByFlags) {
  const auto result = launch(
      kSecondHost,
      {"--nproc_per_node=3", "--nnodes", "1", "--node-rank=0", "--master-port", "0"});
  EXPECT_EQ(sorted_lines(result.output).size(), 3u) << result.output;
  EXPECT_THAT(result.output, HasSubstr("of 3 at 127.0.0.1:"));
}

TEST(TorchrunVariables, RdzvEndpointIsTheRendezvous) {
  const auto result = launch(
      {{"PET_NNODES", "2:2"},
       {"PET_NODE_RANK", "1"},
       {"PET_RDZV_ENDPOINT", "127.0.0.1:4568"}});
  EXPECT_EQ(result.output, "[rank 1] 1 of 2 at 127.0.0.1:4568\n");
}

TEST(TorchrunVariables, NprocPerNodeCountsCpusAndGpus) {
  const auto ranks = [](const std::string& word, const std::string& gpus) {
    const auto result =
        launch({{"PET_NPROC_PER_NODE", word}, {"CUDA_VISIBLE_DEVICES", gpus}});
    return static_cast<int>(sorted_lines(result.output).size());
  };
  EXPECT_EQ(ranks("cpu", "0,1,2"), usable_cpus());
  EXPECT_EQ(ranks("auto", ""), usable_cpus());
  EXPECT_EQ(ranks("auto", "0,1,2"), 3);
  EXPECT_EQ(ranks("gpu", "0,1,2,3"), 4);
}

TEST(TorchrunVariables, AreIgnoredInARankAndWhenEmpty) {
  auto rank = kSecondHost;
  rank.emplace_back("RANK", "0");
  EXPECT_EQ(sorted_lines(launch(rank).output).size(), 1u);
  const auto empty = launch({{"PET_NNODES", ""}, {"PET_MASTER_PORT", ""}});
  EXPECT_EQ(sorted_lines(empty.output).size(), 1u);
  EXPECT_EQ(empty.errors, "");
}

TEST(TorchrunVariables, RdzvIdRejectsAHostOfAnotherRun) {
  const auto port = unused_port();
  const auto host = [&](const std::string& number, const std::string& run) {
    return std::vector<std::string>{program(),     "launch", "--nnodes",          "2",
                                    "--node-rank", number,   "--master-port",     port,
                                    "--rdzv-id",   run,      "--timeout-seconds", "20",
                                    "sleep",       "60"};
  };
  Process first({host("0", "a"), {}, true});
  const auto other = run_command(host("1", "b"), {}, 60);
  first.signal(SIGTERM);
  first.wait();
  expect_exit(other, 2, {"run 'b'", "run 'a'"});
}

TEST(TorchrunVariables, OverrideTheRecipeOfTrainButNotFlags) {
  const Scratch scratch;
  replace_file(scratch / "recipe.toml", "nproc = 3\nmodel = \"simplenet\"\n");
  const auto train = [&](const Arguments& flags) {
    return tandem_run(
        with(
            {"train", scratch / "recipe.toml", "--limit", "256", "--out",
             scratch / "run"},
            flags),
        {{"PET_NPROC_PER_NODE", "2"}});
  };
  const auto two = checked(train({}));
  EXPECT_THAT(two.output, HasSubstr("2 ranks over shm"));
  EXPECT_THAT(
      two.errors,
      StartsWith("tandem: [launch] 2 ranks: 2 on each of 1 host, this is host 0"));
  EXPECT_EQ(json_value(scratch / "run/summary.json", "world_size"), "2");
  remove_all(scratch / "run");
  EXPECT_THAT(train({"--nproc", "1"}).output, HasSubstr("1 rank, "));
}

}  // namespace tandem::torchrun_variables_test
