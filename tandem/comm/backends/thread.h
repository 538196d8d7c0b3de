#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Returns communicators for `size` ranks that are threads of this process, one for
/// each rank.
///
/// The rank that arrives last computes the result, in rank order. Results therefore
/// have the same bits in every run, however a buffer is divided. If a size or dtype
/// differs between ranks, or ranks call different operations, all of them throw
/// CommError.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int size, std::chrono::milliseconds timeout = kDefaultCommTimeout);

/// Runs `body` on `size` threads, as ranks 0 to size - 1 (set_thread_rank()), and waits
/// for all threads. If a thread throws, the operations of the other threads fail, and
/// run_ranks() throws the first error.
void run_ranks(
    int size, const std::function<void(Communicator&)>& body,
    std::chrono::milliseconds timeout = kDefaultCommTimeout);

}  // namespace tandem
