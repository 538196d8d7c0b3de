#pragma once

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

struct MpiOptions {
  // Longest time an operation may take.
  std::chrono::milliseconds timeout{300'000};
};

/// Whether this build has MPI (Open MPI's libopenmpi-dev when it was configured).
bool has_mpi();

/// A communicator of all ranks that mpirun started, in a group of its own beside
/// MPI_COMM_WORLD. They need no store and no address: mpirun knows them.
///
/// Operations are MPI's nonblocking ones. They move while the rank is in a call of this
/// communicator: each call drives all that are in flight. The order of summation is
/// MPI's and depends on the size of a buffer, so at three or more ranks the last bits
/// of results depend on how a buffer is cut. float16 and bfloat16 are summed in
/// float32. An operation moves at most 2^31 - 1 elements. Tags begin at 0.
///
/// MPI begins with the first communicator of a process and ends with the process. When
/// an operation has failed, or an exception destroys a communicator, it is not ended in
/// order, and mpirun stops the other ranks.
///
/// Throws ConfigError in a build without MPI or when MPI cannot be used any more,
/// CommError when MPI does not start.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options = {});

}  // namespace tandem
