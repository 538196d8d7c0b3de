#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tandem/base/store/socket.h"
#include "tandem/comm/rpc/rpc.h"

namespace tandem {

/// Connects to the RequestServer of rank `to` as rank `from`, and performs the
/// handshake, in which both sides prove that they know `key` (base/store/handshake.h).
/// Throws CommError if the server does not accept the connection before the deadline.
Socket connect_to_server(
    const std::string& address, const std::string& key, int from, int to,
    Socket::Deadline deadline);

/// Receives requests of other ranks over TCP, in a separate thread.
///
/// A connection has the requests of one rank and their answers. The server accepts only
/// ranks that know the key. Clients whose handshake is not complete use little memory,
/// and their number and time are limited as in the store (base/store/protocol.h).
class RequestServer {
 public:
  /// `key` is the secret that this server shares with the ranks that call it.
  RequestServer(Socket listener, const std::string& key, int rank, int size);
  ~RequestServer();
  RequestServer(const RequestServer&) = delete;
  RequestServer& operator=(const RequestServer&) = delete;

  /// Returns the oldest request, or nullopt if none arrives within `timeout`. Throws
  /// CommError with the rank if there is no request and a rank has closed its
  /// connection.
  std::optional<RpcRequest> next(std::chrono::milliseconds timeout);

  /// Returns whether rank `peer` is connected, so that next() reports its end.
  bool is_connected(int peer) const;

 private:
  class Loop;

  Socket listener_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace tandem
