#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem {

constexpr std::chrono::milliseconds kDefaultCommTimeout{300'000};

/// Communicators for `size` ranks that are threads of this process, one each.
///
/// The rank that arrives last does the work of an operation, in rank order, so
/// results have the same bits each time and however a buffer is cut. A size or
/// dtype that differs between ranks, or ranks that call different operations,
/// throw CommError on all of them.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int size, std::chrono::milliseconds timeout = kDefaultCommTimeout);

/// Runs `body` on `size` threads, each told its rank (log.h), and waits for all.
/// When one throws, the others' operations fail, and the first error is thrown
/// here.
void run_ranks(
    int size, const std::function<void(Communicator&)>& body,
    std::chrono::milliseconds timeout = kDefaultCommTimeout);

}  // namespace tandem
