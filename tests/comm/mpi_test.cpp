// Behavior of ranks under mpirun only: errors, and their effect on other ranks.

#include "tandem/comm/backends/mpi.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/join/join.h"
#include "tests/comm/mpi_ranks.h"
#include "tests/core/expect.h"

namespace tandem::mpi_test {

using std::chrono::milliseconds;
using testing::HasSubstr;

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpi()) {
      GTEST_SKIP() << "this build has no MPI; scripts/setup, then a new build: "
                      "scripts/test -R Mpi";
    }
  }

  // Returns the output of two ranks that run this test. A rank that fails does not
  // finalize MPI, so mpirun's exit code means nothing.
  static CommandResult run_as_two_ranks() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return run_command(
        mpirun_command(
            2, {executable_path(), "--gtest_color=no",
                std::string("--gtest_filter=Mpi.") + test->name()}),
        {}, 100);
  }

  // Writes immediately, separate from the other rank's output.
  static void say(const std::string& line) {
    std::printf("\n%s\n", line.c_str());
    std::fflush(stdout);
  }
};

TEST_F(Mpi, ErrorsNameTheOperationItsNumberAndItsLabel) {
  if (!is_mpi_rank()) {
    const auto result = run_as_two_ranks();
    expect_parts(
        result.output, {"all_reduce #2 (bucket 4)", "no answer within 100 ms"});
    return;
  }
  const auto comm = make_mpi_communicator(milliseconds(20'000));
  comm->barrier();
  const auto tensor = at::zeros({3});
  if (comm->rank() == 0) {
    const auto work = comm->all_reduce(tensor, ReduceOp::sum, "bucket 4");
    say(error_of<CommError>([&] { work->wait(milliseconds(100)); }));
    // Rank 1 waits before mpirun notices that rank 0 has ended.
  } else {
    error_of<CommError>([&] { comm->recv(tensor, 0, 1)->wait(milliseconds(10'000)); });
  }
}

TEST_F(Mpi, AMessageOfAnotherSizeIsAnError) {
  if (!is_mpi_rank()) {
    const auto result = run_as_two_ranks();
    EXPECT_THAT(result.output, HasSubstr("expected 4 elements, got 3"));
    return;
  }
  const auto comm = make_mpi_communicator(milliseconds(20'000));
  if (comm->rank() == 0) {
    comm->send(at::zeros({3}), 1, 5)->wait();
    error_of<CommError>(
        [&] { comm->recv(at::zeros({1}), 1, 1)->wait(milliseconds(10'000)); });
  } else {
    const auto four = at::zeros({4});
    say(error_of<CommError>([&] { comm->recv(four, 0, 5)->wait(); }));
  }
}

TEST_F(Mpi, ARankThatEndsWithAnErrorEndsTheOthers) {
  if (!is_mpi_rank()) {
    const auto result = run_as_two_ranks();
    EXPECT_FALSE(result.status.ok());
    EXPECT_THAT(result.output, HasSubstr("rank 1 fails"));
    EXPECT_THAT(result.output, testing::Not(HasSubstr("rank 0 continued")));
    EXPECT_LT(result.seconds, 60);
    return;
  }
  const auto leave = [] {
    const auto comm = make_mpi_communicator(milliseconds(100'000));
    comm->barrier();
    if (comm->rank() == 1) {
      say("rank 1 fails");
      throw DataError("[test] gone");
    }
    comm->barrier();
    say("rank 0 continued");
  };
  EXPECT_EQ(error_of<DataError>(leave), "(no error)");
}

TEST_F(Mpi, GroupsMayHaveAnyColorAndBeDestroyed) {
  if (!is_mpi_rank()) {
    rerun_under_mpirun(2);
    return;
  }
  // MPI's own colors are not negative.
  run_mpi_ranks(2, [](Communicator& comm) {
    for (int i = 0; i < 100; ++i) {
      const auto together = comm.split(-5);
      const auto apart = comm.split(-5 - comm.rank());
      TANDEM_CHECK(apart->size() == 1, "another size");
      auto sum = at::full({1}, 1 + comm.rank(), at::kInt);
      together->all_reduce(sum)->wait();
      TANDEM_CHECK(sum.item<int>() == 3, "another sum");
    }
  });
}

TEST_F(Mpi, RanksJoinWithoutStoreOrAddress) {
  if (!is_mpi_rank()) {
    rerun_under_mpirun(2);
    return;
  }
  CommOptions options;
  options.backend = BackendKind::mpi;
  const JoinedRun run = join_run(options);
  EXPECT_EQ(run.store, nullptr);
  EXPECT_EQ(run.server, nullptr);
  EXPECT_EQ(run.comm->size(), 2);
  EXPECT_EQ(run.comm->backend(), "mpi");
  run.comm->barrier();
}

TEST_F(Mpi, WithoutMpirunTheErrorNamesTheCommand) {
  if (is_mpi_rank()) {
    return;
  }
  CommOptions options;
  options.backend = BackendKind::mpi;
  expect_error<ConfigError>(
      [&] { return join_run(RankEnv(), options); }, {"mpirun -np 2"});
}

}  // namespace tandem::mpi_test
