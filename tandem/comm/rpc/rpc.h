#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem {

/// A request or an answer: a header of arbitrary bytes, and tensors of any dtype, shape
/// and device. Received tensors are in main memory and belong to the receiver.
struct RpcMessage {
  std::string header;
  std::vector<at::Tensor> tensors;
};

/// A request that this rank received. The calling rank waits until this rank calls
/// `reply`. Call `reply` once, at any time before the Rpc is destroyed. `reply` copies
/// the answer's tensors before it returns.
struct RpcRequest {
  // Rank that sent the request.
  int from = 0;
  RpcMessage message;
  std::function<void(RpcMessage answer)> reply;
};

/// Sends requests and answers between the ranks of a group. A rank may call any other
/// rank at any time. Requests wait in a queue until the called rank gets them with
/// next(), so one thread handles all requests of a rank (examples/rpc).
///
/// Not thread-safe: only one thread of a rank may call, receive or answer at a time.
/// Every wait ends after the group's timeout. Destroying an Rpc drops messages in
/// transit, so call barrier() of the group first.
class Rpc {
 public:
  virtual ~Rpc() = default;

  /// Sends a request to rank `peer` and returns the answer. The request's tensors must
  /// not change during the call.
  ///
  /// Throws CommError if no answer arrives in time or a rank has ended.
  /// CommError::peer() is the rank that ended or did not answer, if it is known.
  virtual RpcMessage call(int peer, RpcMessage request) = 0;

  /// Waits until there is a request, and returns the oldest request.
  ///
  /// Throws CommError if no request arrives in time. If a rank has ended,
  /// CommError::peer() is that rank.
  virtual RpcRequest next() = 0;
};

/// Interface of communicators whose ranks can call each other
/// (Communicator::rpc_backend()).
class RpcBackend {
 public:
  /// Returns a new Rpc. Collective.
  [[nodiscard]] virtual std::unique_ptr<Rpc> make_rpc() = 0;

  /// Statistics of all Rpcs of the communicator. Each request or answer that this rank
  /// sends counts as an operation.
  CommStats rpc_stats;

 protected:
  ~RpcBackend() = default;
};

/// Returns whether the ranks of a group can call each other.
bool has_rpc(const Communicator& comm);

/// Returns an Rpc between the ranks of a group. Collective. The communicator must
/// outlive the result. Messages are sent through memory between thread ranks, through
/// shared memory in a shm group, and over TCP in a group that uses Gloo.
///
/// Throws ConfigError if has_rpc() is false, CommError if not all ranks arrive in time.
[[nodiscard]] std::unique_ptr<Rpc> make_rpc(Communicator& comm);

/// Returns the statistics of a communicator's operations and Rpcs together.
CommStats all_stats(const Communicator& comm);

}  // namespace tandem
