#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"

namespace tandem {

/// Settings of a group over shared memory.
struct ShmOptions {
  // Longest time that an operation may take.
  std::chrono::milliseconds timeout{300'000};
  // Longest delay of a rank at the start; zero: the value of `timeout`.
  std::chrono::milliseconds forming_timeout{0};
};

/// Returns a communicator of rank processes of one host (or threads) over shared
/// memory, an anonymous file that the kernel removes with the last rank, even if ranks
/// crash. It needs Linux's /proc, and one user and one container for all ranks.
///
/// The ranks meet in `store` under `name`, which must be new for every group. Sums are
/// in rank order, and each addition is rounded to the tensor's dtype: the bits are
/// those of thread ranks, for any division of a buffer. Operations progress in calls of
/// the rank's thread; there is no other thread. A waiting call polls first, and sleeps
/// if the wait is long. If ranks call different operations, or with different sizes,
/// all of them throw CommError; they also do if a rank ends.
///
/// make_buffer() returns memory that other ranks read and write in place, for at most
/// 128 buffers at a time. An all_reduce of a part of a buffer copies nothing, an
/// all_gather into a buffer copies once.
///
/// Throws ConfigError if the ranks are not all on one host, CommError if not all arrive
/// within the timeout.
std::unique_ptr<Communicator> make_shm_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const ShmOptions& options = {});

/// Does the same, but returns null on all ranks, with the reason in `why_not`, if they
/// cannot share memory.
std::unique_ptr<Communicator> try_shm_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const ShmOptions& options, std::string& why_not);

}  // namespace tandem
