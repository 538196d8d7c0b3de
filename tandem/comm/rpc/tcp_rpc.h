#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/rpc/rpc.h"

namespace tandem {

/// Settings of an Rpc over TCP.
struct TcpRpcOptions {
  // Address at which this rank listens.
  std::string address = "127.0.0.1";
  // Addresses that may connect to this rank; empty: all addresses (AddressFilter).
  std::set<std::string> admitted;
  // Timeout of each wait: for an answer, for a request, and for the other ranks at the
  // start.
  std::chrono::milliseconds timeout = kDefaultCommTimeout;
};

/// Returns an Rpc between ranks over TCP. The ranks find each other through `store`,
/// with keys that begin with `name`. Use a different `name` for every Rpc.
///
/// Each rank listens at a port that the kernel chooses, and connects to another rank
/// before its first call. Both ranks prove that they know the store's token and a
/// secret of the called rank, which is in the store. So a process that does not belong
/// to the run cannot send a message. Messages are not encrypted.
///
/// A rank that waits in next() connects to all ranks after about a second, so that it
/// detects their end.
std::unique_ptr<Rpc> make_tcp_rpc(
    const std::shared_ptr<StoreClient>& store, const std::string& name, int rank,
    int size, const TcpRpcOptions& options = {});

}  // namespace tandem
