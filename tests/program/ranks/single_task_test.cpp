// A single process of srun or mpirun, which starts the ranks of --nproc itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/program/program.h"

namespace tandem::single_task_test {

using testing::HasSubstr;

// Variables of `srun -n COUNT`.
Variables slurm_variables(const std::string& count) {
  return {{"SLURM_JOB_ID", "17"},        {"SLURM_NTASKS", count},
          {"SLURM_PROCID", "0"},         {"SLURM_LOCALID", "0"},
          {"SLURM_STEP_ID", "0"},        {"SLURM_NODEID", "0"},
          {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODELIST", "localhost"}};
}

Arguments train_on_two_ranks(const char* ranks) {
  return {"train",   "--model", "simplenet",   "--limit", "64",
          "--nproc", "2",       "--rank-type", ranks,     "--dry-run"};
}

TEST(SingleTask, OfSrunStartsTheRanksItself) {
  for (const char* ranks : {"process", "thread"}) {
    const auto result = run_ok(train_on_two_ranks(ranks), slurm_variables("1"));
    EXPECT_THAT(result.output, HasSubstr("2 ranks over")) << ranks;
  }
}

TEST(SingleTask, OfMpirunStartsTheRanksItself) {
  const auto result = run_ok(
      train_on_two_ranks("process"),
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  EXPECT_THAT(result.output, HasSubstr("2 ranks over"));
}

TEST(SingleTask, OfSeveralNamesTheVariableOfTheLauncher) {
  const auto result = tandem_run(train_on_two_ranks("process"), slurm_variables("3"));
  expect_exit(
      result, 2,
      {"request 2 ranks, but SLURM_NTASKS is 3; leave out --nproc under a launcher, or "
       "let it start one process"});
}

}  // namespace tandem::single_task_test
