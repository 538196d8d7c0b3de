#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Default of the longest time that an operation may take.
constexpr std::chrono::milliseconds kDefaultCommTimeout{300'000};

/// Returns communicators for `size` ranks that are threads of this process, one for
/// each rank.
///
/// The rank that arrives last computes the result, in rank order, so results have the
/// same bits each time and for any division of a buffer. If a size or dtype differs
/// between ranks, or ranks call different operations, CommError is thrown on all of
/// them.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int size, std::chrono::milliseconds timeout = kDefaultCommTimeout);

/// Runs `body` on `size` threads, as ranks 0 to size - 1 (set_thread_rank()), and waits
/// for all. If a thread throws, the operations of the others fail, and the first error
/// is thrown here.
void run_ranks(
    int size, const std::function<void(Communicator&)>& body,
    std::chrono::milliseconds timeout = kDefaultCommTimeout);

}  // namespace tandem
