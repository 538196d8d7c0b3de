#pragma once

// Common parts of tests that compare parallel training with sequential training on the
// whole batch, in float64, with dropout.

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tests/comm/group.h"
#include "tests/parallel/replica.h"

namespace tandem {

constexpr double kTolerance = 1e-12;

inline std::vector<RunResult> train_in_parallel(
    int size, const RunOptions& options, const std::string& backend = "thread") {
  if (backend == "mpi" && !is_mpi_rank()) {
    rerun_under_mpirun(size);
  }
  return on_each_rank(backend, size, [&](Communicator& comm) {
    return train_small_net(comm, options);
  });
}

// A test case: a division of the work among ranks and micro-batches. The reference is
// the sequential strategy on the same global batch, in `reference_micro_batches`
// micro-batches.
struct Division {
  const char* name;
  int ranks;
  const char* backend;
  SyncMode sync;
  // Number of micro-batches of each rank in a step.
  int64_t micro_batches;
  int64_t reference_micro_batches;
  int64_t data_size;
  // Maximum relative difference from the reference; 0 if the bits must be equal.
  double tolerance;
};

inline void PrintTo(const Division& division, std::ostream* out) {
  *out << division.name;
}

constexpr auto kParameter = SyncMode::parameter;
constexpr auto kFlat = SyncMode::flat;
constexpr auto kOverlap = SyncMode::overlap;

}  // namespace tandem
