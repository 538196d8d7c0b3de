#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem {

/// What goes from one rank to another: bytes that say what it is, and tensors of any
/// dtype, shape and device. The receiver's tensors are its own, in main memory.
struct RpcMessage {
  std::string header;
  std::vector<at::Tensor> tensors;
};

/// A request that came in. Answer it once, now or later: the caller waits. What the
/// answer's tensors hold is taken before `reply` returns.
struct RpcRequest {
  int from = 0;
  RpcMessage message;
  std::function<void(RpcMessage answer)> reply;
};

/// Requests and answers between the ranks of a group, in no common order: a rank asks
/// whom it wants when it wants. Requests queue up at the rank asked until it takes
/// them, so that whatever they change is touched by one thread only.
///
/// Every wait ends at the group's timeout. One thread calls, takes and answers at a
/// time. Destroying it ends what is on the way: meet in a barrier first.
class Rpc {
 public:
  virtual ~Rpc() = default;

  /// Sends a request and waits for its answer. The tensors are not touched meanwhile.
  ///
  /// Throws CommError that names the peer when it is gone or does not answer in time.
  virtual RpcMessage call(int peer, RpcMessage request) = 0;

  /// The request that came first of those not yet taken; waits for one.
  ///
  /// Throws CommError when none comes in time, or when a peer is gone (and names it).
  virtual RpcRequest next() = 0;
};

/// A second base of communicators whose ranks can call each other.
class RpcBackend {
 public:
  virtual std::unique_ptr<Rpc> make_rpc() = 0;

  /// What all its Rpcs have done; each request or answer sent counts as an operation.
  CommStats rpc_stats;

 protected:
  ~RpcBackend() = default;
};

/// Whether ranks of this group can call each other.
bool has_rpc(const Communicator& comm);

/// Between thread ranks mailboxes in memory; between processes of one host messages in
/// shared memory; over Gloo LibTorch's TensorPipe agent. Collective. The communicator
/// outlives it.
///
/// Throws ConfigError for a backend whose ranks cannot, CommError when not all ranks
/// come.
std::unique_ptr<Rpc> make_rpc(Communicator& comm);

/// The stats of collectives and calls together.
CommStats all_stats(const Communicator& comm);

}  // namespace tandem
