#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/rpc/rpc.h"

namespace tandem {

/// Settings of an Rpc over TensorPipe.
struct TensorPipeOptions {
  // Address of the network interface to use, if TP_SOCKET_IFNAME is not set.
  std::string address = "127.0.0.1";
  // Addresses that may connect to this rank; empty: all addresses (AddressFilter).
  std::set<std::string> admitted;
  // Timeout of each wait: for an answer, for a request, and for the other ranks at the
  // start.
  std::chrono::milliseconds timeout = kDefaultCommTimeout;
};

/// Returns an Rpc between rank processes over LibTorch's TensorPipe agent, without
/// Python. Messages use shared memory on one host and TCP between hosts. The ranks find
/// each other through `store`, with keys that begin with `name`. Use a different `name`
/// for every Rpc. Only one such Rpc may exist in a process, because two TensorPipe
/// agents in one process never shut down.
///
/// While a rank waits in next(), it checks about once a second that the other ranks
/// still exist.
std::unique_ptr<Rpc> make_tensorpipe_rpc(
    std::shared_ptr<StoreClient> store, const std::string& name, int rank, int size,
    const TensorPipeOptions& options = {});

}  // namespace tandem
