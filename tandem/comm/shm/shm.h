#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"

namespace tandem {

struct ShmOptions {
  // Longest time that an operation may take.
  std::chrono::milliseconds timeout{300'000};
  // Longest time that a rank may be late at the start; zero: as long.
  std::chrono::milliseconds forming_timeout{0};
};

/// A communicator of rank processes of one host (or threads) over shared memory, an
/// anonymous file that is gone with the last rank, however they end. It needs Linux's
/// /proc, and one user and one container for all ranks.
///
/// The ranks meet in `store` under `name`, which must be new for every group. Sums are
/// in rank order, each addition rounded to the tensor's dtype: the bits of thread
/// ranks, however a buffer is cut. Operations move in calls of the rank's own thread:
/// none is started beside it. A call waits by looking, and sleeps when that takes long.
/// Ranks that call different operations, or with different sizes, throw CommError on
/// all of them, as does a rank that ends.
///
/// make_buffer() gives memory that other ranks read and write in place, for at most 128
/// buffers at a time. all_reduce of a part of one copies nothing, all_gather into one
/// copies once.
///
/// Throws ConfigError when the ranks are not all on one host, CommError when not all
/// come within the timeout.
std::unique_ptr<Communicator> make_shm_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const ShmOptions& options = {});

/// Does the same, but returns null on all ranks, with the reason in `why_not`, where
/// they cannot share memory.
std::unique_ptr<Communicator> try_shm_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const ShmOptions& options, std::string& why_not);

}  // namespace tandem
