#pragma once

#include <mpi.h>

#include <memory>

#include "tandem/comm/backends/mpi.h"

namespace tandem {

/// Returns a communicator of the ranks of `comm`, which it duplicates. Otherwise like
/// make_mpi_communicator() in mpi.h. Collective. If the program has initialized MPI,
/// destroy the communicator before MPI_Finalize, or do not use it afterwards.
std::unique_ptr<Communicator> make_mpi_communicator(
    MPI_Comm comm, std::chrono::milliseconds timeout);

}  // namespace tandem
