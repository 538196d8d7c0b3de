#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem {

/// A request or an answer: a header of any bytes, and tensors of any dtype, shape and
/// device. The receiver owns the tensors that it gets, which are in main memory.
struct RpcMessage {
  std::string header;
  std::vector<at::Tensor> tensors;
};

/// A request that this rank received. The caller waits until `reply` is called. Call it
/// once, at any time before the Rpc is destroyed. It copies the answer's tensors before
/// it returns.
struct RpcRequest {
  // The rank that calls.
  int from = 0;
  RpcMessage message;
  std::function<void(RpcMessage answer)> reply;
};

/// Requests and answers between the ranks of a group. A rank may call any other rank at
/// any time. Requests wait in a queue until the called rank takes them with next(), so
/// one thread handles all requests of a rank (examples/rpc).
///
/// Not thread-safe: at most one thread of a rank calls, takes or answers at a time.
/// Every wait ends at the group's timeout. Destroying an Rpc drops messages that are on
/// the way: call barrier() of the group first.
class Rpc {
 public:
  virtual ~Rpc() = default;

  /// Sends a request to rank `peer` and waits for its answer. The tensors must not
  /// change meanwhile.
  ///
  /// Throws CommError with the peer if it is gone or does not answer in time.
  virtual RpcMessage call(int peer, RpcMessage request) = 0;

  /// Waits for a request and returns the one that came first.
  ///
  /// Throws CommError if none comes in time, or, with the peer, if a rank is gone.
  virtual RpcRequest next() = 0;
};

/// A second base of communicators whose ranks can call each other
/// (Communicator::rpc_backend()).
class RpcBackend {
 public:
  [[nodiscard]] virtual std::unique_ptr<Rpc> make_rpc() = 0;

  /// What all its Rpcs have done; each request or answer sent counts as an operation.
  CommStats rpc_stats;

 protected:
  ~RpcBackend() = default;
};

/// Whether ranks of this group can call each other.
bool has_rpc(const Communicator& comm);

/// Returns an Rpc between the ranks of a group. Collective: every rank of the group
/// calls it. The communicator must outlive the result. Messages pass through memory
/// between thread ranks, through shared memory between processes of one host, and
/// through LibTorch's TensorPipe over Gloo.
///
/// Throws ConfigError if has_rpc() is false, CommError if not all ranks come in time.
[[nodiscard]] std::unique_ptr<Rpc> make_rpc(Communicator& comm);

/// The stats of collectives and calls together.
CommStats all_stats(const Communicator& comm);

}  // namespace tandem
