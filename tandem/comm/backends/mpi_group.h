#pragma once

#include <mpi.h>

#include <memory>

#include "tandem/comm/backends/mpi.h"

namespace tandem {

/// As make_mpi_communicator(), but of the ranks of `comm`, which is duplicated.
/// Collective. If the program has initialized MPI, destroy the communicator before
/// MPI_Finalize, or do not use it afterwards.
std::unique_ptr<Communicator> make_mpi_communicator(
    MPI_Comm comm, const MpiOptions& options);

}  // namespace tandem
