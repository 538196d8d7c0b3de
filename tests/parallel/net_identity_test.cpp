// Compares divisions of the model `net` of tutorial 003 with one rank. Further numbers
// of thread ranks and micro-batches are in data_parallel_identity_test.cpp.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/comm/backends/mpi.h"
#include "tests/parallel/identity.h"

namespace tandem::net_identity_test {

class NetIdentity : public testing::TestWithParam<Division> {};

TEST_P(NetIdentity, EqualsSequential) {
  const Division& division = GetParam();
  RunOptions options;
  options.layers = net_layers();
  options.data_size = division.data_size;
  options.tail = Tail::keep;
  options.micro_batches = division.reference_micro_batches;
  const auto reference = train_sequentially(options);
  options.micro_batches = division.micro_batches;
  options.strategy.sync = division.sync;
  const auto ranks = train_in_parallel(division.ranks, options, division.backend);
  if (ranks.empty()) {
    return;  // MPI ranks are separate processes, which make the comparison
  }
  double largest = 0;
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.sha256, ranks[0].sha256);
    largest =
        std::max(largest, relative_difference(rank.parameters, reference.parameters));
  }
  RecordProperty("relative_difference", testing::PrintToString(largest));
  if (division.tolerance == 0) {
    EXPECT_EQ(ranks[0].sha256, reference.sha256);
  } else {
    EXPECT_LE(largest, division.tolerance);
  }
}

// A step has 24 samples. The last step has 12 of 60 samples, or 13 of 61 samples, which
// do not divide evenly among ranks.
const std::vector<Division> kDivisions = {
    {"one_rank_parameter", 1, "thread", kParameter, 1, 1, 60, 0},
    {"one_rank_flat", 1, "thread", kFlat, 1, 1, 60, 0},
    {"one_rank_overlap", 1, "thread", kOverlap, 1, 1, 60, 0},
    {"two_threads_parameter", 2, "thread", kParameter, 1, 2, 60, 0},
    {"two_threads_flat", 2, "thread", kFlat, 1, 2, 60, 0},
    {"two_threads_overlap", 2, "thread", kOverlap, 1, 2, 60, 0},
    {"two_gloo_parameter", 2, "gloo", kParameter, 1, 2, 60, 0},
    {"two_gloo_flat", 2, "gloo", kFlat, 1, 2, 60, 0},
    {"two_gloo_overlap", 2, "gloo", kOverlap, 1, 2, 60, 0},
    {"two_shm_parameter", 2, "shm", kParameter, 1, 2, 60, 0},
    {"two_shm_flat", 2, "shm", kFlat, 1, 2, 60, 0},
    {"two_shm_overlap", 2, "shm", kOverlap, 1, 2, 60, 0},
    {"two_shm_uneven", 2, "shm", kOverlap, 1, 2, 61, 0},
    {"three_shm_overlap", 3, "shm", kOverlap, 1, 1, 60, kTolerance},
    {"four_shm_uneven", 4, "shm", kOverlap, 1, 1, 61, kTolerance},
    {"three_on_two_hosts_flat", 3, "hierarchical", kFlat, 1, 1, 60, kTolerance},
    {"four_on_two_hosts_overlap", 4, "hierarchical", kOverlap, 1, 1, 61, kTolerance},
    {"two_mpi_parameter", 2, "mpi", kParameter, 1, 2, 60, 0},
    {"two_mpi_flat", 2, "mpi", kFlat, 1, 2, 60, 0},
    {"two_mpi_overlap", 2, "mpi", kOverlap, 1, 2, 60, 0},
    {"two_mpi_uneven", 2, "mpi", kOverlap, 1, 2, 61, 0},
    {"two_threads_uneven", 2, "thread", kOverlap, 1, 2, 61, 0},
    {"two_gloo_uneven", 2, "gloo", kOverlap, 1, 2, 61, 0},
    {"two_threads_undivided", 2, "thread", kOverlap, 1, 1, 60, kTolerance},
    {"two_threads_undivided_uneven", 2, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"three_threads_parameter", 3, "thread", kParameter, 1, 1, 60, kTolerance},
    {"three_gloo_overlap", 3, "gloo", kOverlap, 1, 1, 60, kTolerance},
    {"three_mpi_overlap", 3, "mpi", kOverlap, 1, 1, 60, kTolerance},
    {"three_threads_uneven", 3, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"four_threads_flat", 4, "thread", kFlat, 1, 1, 60, kTolerance},
    {"four_gloo_overlap", 4, "gloo", kOverlap, 1, 1, 60, kTolerance},
    {"four_mpi_overlap", 4, "mpi", kOverlap, 1, 1, 60, kTolerance},
    {"four_threads_uneven", 4, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"three_accumulations_uneven", 1, "thread", kOverlap, 3, 1, 61, kTolerance},
    {"two_gloo_three_accumulations_uneven", 2, "gloo", kOverlap, 3, 1, 61, kTolerance},
};

std::vector<Division> divisions_of_this_build() {
  std::vector<Division> divisions;
  for (const auto& division : kDivisions) {
    if (has_mpi() || division.backend != std::string("mpi")) {
      divisions.push_back(division);
    }
  }
  return divisions;
}

INSTANTIATE_TEST_SUITE_P(
    Table, NetIdentity, testing::ValuesIn(divisions_of_this_build()),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace tandem::net_identity_test
