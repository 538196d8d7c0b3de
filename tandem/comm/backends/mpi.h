#pragma once

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Settings of an MPI group.
struct MpiOptions {
  // Longest time an operation may take.
  std::chrono::milliseconds timeout{300'000};
};

/// Returns whether this build has MPI (Open MPI's libopenmpi-dev at configuration).
bool has_mpi();

/// Returns a communicator of all ranks that mpirun started, as a duplicate of
/// MPI_COMM_WORLD. The ranks need no store and no address, because mpirun connects
/// them.
///
/// Operations are MPI's nonblocking operations. They progress while the rank is in a
/// call of this communicator; each call advances all operations in flight. The order of
/// summation is MPI's and depends on the size of a buffer, so with three or more ranks
/// the last bits of results depend on how a buffer is divided. float16 and bfloat16 are
/// summed in float32. An operation moves at most 2^31 - 1 elements. Tags begin at 0.
///
/// MPI starts with the first communicator of a process and ends with the process. If an
/// operation has failed, or an exception destroys a communicator, MPI is not finalized,
/// and mpirun stops the other ranks.
///
/// Throws ConfigError in a build without MPI or if MPI was already finalized, CommError
/// if MPI does not start.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options = {});

}  // namespace tandem
