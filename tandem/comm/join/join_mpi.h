#pragma once

#include <mpi.h>

#include "tandem/comm/join/join.h"

namespace tandem {

/// Forms a group of the ranks of an MPI communicator, for programs that call MPI
/// themselves. The rest of the program can still use `comm`. tandem.h does not include
/// this header, because it needs mpi.h.
///
///   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
///   auto run = tandem::join_run(MPI_COMM_WORLD);
///   tandem::DistributedDataParallel ddp(*net, *run.comm);
///
/// **Ranks.** A rank has its number in `comm`, which may be a part of MPI_COMM_WORLD. A
/// process can join several groups. Environment variables are not read.
///
/// **Backend.** `auto` is shm if all ranks are on one host, and mpi otherwise. With
/// shm, MPI only carries the address at which the ranks meet, so MPI_Init is
/// sufficient. The backend mpi uses a duplicate of `comm`, and needs MPI_Init_thread
/// with MPI_THREAD_MULTIPLE.
///
/// **Results.** shm adds the values of ranks in the order of the ranks. MPI adds in an
/// order that depends on the size of the buffer. With one or two ranks, both have the
/// same bits; with more ranks, the last bits may differ.
///
/// tandem calls neither MPI_Init nor MPI_Finalize. The JoinedRun may be destroyed after
/// MPI_Finalize.
///
/// Collective over `comm`. Throws ConfigError if MPI is not initialized as the backend
/// needs it, for other backends, or if shm is requested for several hosts. Throws
/// CommError if a rank does not join in time.
[[nodiscard]] JoinedRun join_run(MPI_Comm comm, const CommOptions& options = {});

}  // namespace tandem
