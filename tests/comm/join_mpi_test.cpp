// Groups of the ranks of MPI communicators, in a program that initializes MPI itself.

#include "tandem/comm/join/join_mpi.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/comm/mpi_ranks.h"
#include "tests/core/expect.h"

namespace tandem::join_mpi_test {

using testing::HasSubstr;

CommOptions with(BackendKind backend) {
  CommOptions options;
  options.backend = backend;
  options.timeout_seconds = 20;
  return options;
}

double sum_of_ranks(Communicator& comm, double value) {
  auto sum = at::full({3}, value, at::kDouble);
  comm.all_reduce(sum)->wait();
  return sum[2].item<double>();
}

class JoinMpi : public testing::Test {
 protected:
  // Returns true in a rank of mpirun, in which MPI is initialized with thread level
  // `level`. Otherwise runs the test on `ranks` ranks.
  static bool is_rank(int ranks, int level = MPI_THREAD_MULTIPLE) {
    if (!is_mpi_rank()) {
      rerun_under_mpirun(ranks);
      return false;
    }
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, level, &provided);
    return true;
  }

  static int world_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
};

TEST_F(JoinMpi, RanksOfOneHostShareMemory) {
  if (!is_rank(3, MPI_THREAD_SINGLE)) {
    return;
  }
  {
    const auto run = join_run(MPI_COMM_WORLD, with(BackendKind::automatic));
    EXPECT_EQ(run.comm->backend(), "shm");
    EXPECT_EQ(run.comm->rank(), world_rank());
    EXPECT_EQ(run.env.world_size, 3);
    EXPECT_EQ(sum_of_ranks(*run.comm, 1 + world_rank()), 6);
  }
  MPI_Finalize();
}

// Two groups at the same time, in reverse order of the ranks.
TEST_F(JoinMpi, PartsOfTheWorldJoinSeparately) {
  if (!is_rank(4)) {
    return;
  }
  const int rank = world_rank();
  for (const auto backend : {BackendKind::automatic, BackendKind::mpi}) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 3 ? 1 : 0, -rank, &part);
    const auto world = join_run(MPI_COMM_WORLD, with(backend));
    const auto run = join_run(part, with(backend));
    EXPECT_EQ(run.comm->size(), rank == 3 ? 1 : 3);
    EXPECT_EQ(run.comm->rank(), rank == 3 ? 0 : 2 - rank);
    EXPECT_EQ(sum_of_ranks(*run.comm, 1 + rank), rank == 3 ? 4 : 6);
    EXPECT_EQ(sum_of_ranks(*world.comm, 1 + rank), 10);
    // The program's communicator is still usable.
    int sum = rank;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, part);
    EXPECT_EQ(sum, 3);
    MPI_Comm_free(&part);
  }
  MPI_Finalize();
}

TEST_F(JoinMpi, TheGroupMayOutliveMpi) {
  if (!is_rank(2)) {
    return;
  }
  const auto shm = join_run(MPI_COMM_WORLD, with(BackendKind::shm));
  const auto mpi = join_run(MPI_COMM_WORLD, with(BackendKind::mpi));
  EXPECT_EQ(mpi.comm->backend(), "mpi");
  mpi.comm->barrier();
  MPI_Finalize();
  EXPECT_EQ(sum_of_ranks(*shm.comm, 2), 4);
}

TEST_F(JoinMpi, TwoRanksHaveTheBitsOfMpi) {
  if (!is_rank(2)) {
    return;
  }
  at::manual_seed(static_cast<uint64_t>(world_rank()));
  const auto mine = at::randn({10'001});
  auto expected = mine.clone();
  MPI_Allreduce(
      MPI_IN_PLACE, expected.data_ptr(), static_cast<int>(expected.numel()), MPI_FLOAT,
      MPI_SUM, MPI_COMM_WORLD);
  for (const auto backend : {BackendKind::shm, BackendKind::mpi}) {
    const auto run = join_run(MPI_COMM_WORLD, with(backend));
    auto sum = mine.clone();
    run.comm->all_reduce(sum)->wait();
    EXPECT_TRUE(sum.equal(expected)) << run.comm->backend();
  }
  MPI_Finalize();
}

TEST_F(JoinMpi, WrongCallsAreErrors) {
  if (!is_mpi_rank()) {
    EXPECT_THAT(
        error_of<ConfigError>([] { return join_run(MPI_COMM_WORLD); }),
        HasSubstr("MPI is not initialized"));
  }
  if (!is_rank(2, MPI_THREAD_SINGLE)) {
    return;
  }
  const auto refused = [](BackendKind backend) {
    return error_of<ConfigError>(
        [&] { return join_run(MPI_COMM_WORLD, with(backend)); });
  };
  EXPECT_THAT(
      refused(BackendKind::gloo), HasSubstr("backend is gloo, expected auto, shm or"));
  EXPECT_THAT(refused(BackendKind::mpi), HasSubstr("expected MPI_THREAD_MULTIPLE"));
  MPI_Finalize();
  EXPECT_THAT(refused(BackendKind::shm), HasSubstr("MPI is finalized"));
}

}  // namespace tandem::join_mpi_test
