#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/rpc/rpc.h"

namespace tandem {

struct TensorPipeOptions {
  // Address of the network interface to use, where TP_SOCKET_IFNAME names none.
  std::string address = "127.0.0.1";
  // The only ones that may connect to this rank; empty: anyone (store/admission.h).
  std::set<std::string> admitted;
  // Longest wait for an answer, a request, and a rank that is late at the start.
  std::chrono::milliseconds timeout{300'000};

  // --- speed ---
  // Threads that take messages apart.
  int threads = 2;
};

/// Calls between rank processes through LibTorch's TensorPipe agent, without Python:
/// shared memory on one host, TCP between hosts. The ranks meet in `store` under
/// `name`, which must be new. One agent per process: two would never end.
///
/// While a rank waits for requests it asks about once a second whether the others are
/// still there, as nobody else would tell it.
std::unique_ptr<Rpc> make_tensorpipe_rpc(
    std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
    const TensorPipeOptions& options = {});

}  // namespace tandem
