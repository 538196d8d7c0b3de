#pragma once

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Returns whether this build supports MPI, which requires that CMake found Open MPI
/// (libopenmpi-dev).
bool has_mpi();

/// Returns a communicator of all ranks that mpirun started, as a duplicate of
/// MPI_COMM_WORLD. `timeout` is the timeout of each operation. The ranks need no store
/// and no address, because mpirun connects them.
///
/// Operations are MPI's nonblocking operations. They progress while the rank is in a
/// call of this communicator; each call advances all operations in flight. MPI
/// determines the order of summation, which depends on the size of a buffer. With three
/// or more ranks, the last bits of results therefore depend on how a buffer is divided.
/// float16 and bfloat16 are summed in float32. An operation moves at most 2^31 - 1
/// elements. Tags must be 0 or more.
///
/// The first communicator of a process initializes MPI, and the end of the process
/// finalizes it. If an operation has failed, or an exception destroys a communicator,
/// MPI is not finalized, and mpirun stops the other ranks.
///
/// Throws ConfigError in a build without MPI or if MPI was already finalized. Throws
/// CommError if MPI cannot be initialized.
std::unique_ptr<Communicator> make_mpi_communicator(
    std::chrono::milliseconds timeout = kDefaultCommTimeout);

}  // namespace tandem
