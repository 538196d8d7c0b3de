#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"

namespace tandem {

struct BackendParts;

/// Settings of a group over shared memory.
struct ShmOptions {
  // Timeout of each operation.
  std::chrono::milliseconds timeout = kDefaultCommTimeout;
  // Timeout of forming the group; zero: the value of `timeout`.
  std::chrono::milliseconds forming_timeout{0};
};

/// Returns the settings of a group that forms before the deadline in `parts`.
ShmOptions shm_options(const BackendParts& parts);

/// Returns a communicator of the rank processes (or threads) of one host over shared
/// memory. The memory is an anonymous file that the kernel removes with the last rank,
/// even if ranks crash. Requires Linux's /proc; all ranks must belong to one user and
/// run in one container.
///
/// The ranks find each other through `store`, with keys that begin with `name`. Use a
/// different `name` for every group. Sums are computed in rank order, and each addition
/// is rounded to the tensor's dtype. Results have the same bits as with thread ranks,
/// however a buffer is divided. Operations progress only during calls of the rank's
/// thread; there is no background thread. A waiting call polls first, and sleeps if the
/// wait is long. If ranks call different operations, or pass different sizes, all of
/// them throw CommError. They also throw CommError if a rank ends.
///
/// make_buffer() returns memory that other ranks read and write in place, for up to 128
/// buffers at a time. An all_reduce of a part of a buffer copies nothing, nor does
/// a reduce_scatter into this part; an all_gather into a buffer copies once.
///
/// Throws ConfigError if the ranks cannot share memory, CommError if not all arrive
/// within the timeout.
std::unique_ptr<Communicator> make_shm_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const ShmOptions& options = {});

/// Like make_shm_communicator(), but if the ranks cannot share memory, returns null on
/// all ranks and writes the reason to `why_not`.
std::unique_ptr<Communicator> try_shm_communicator(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const ShmOptions& options, std::string& why_not);

}  // namespace tandem
