#pragma once

#include <chrono>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

/// Owns a file descriptor of a stream socket; moves, does not copy.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int fd() const {
    return fd_;
  }
  explicit operator bool() const {
    return fd_ >= 0;
  }
  int release();

  /// Sends or receives exactly `size` bytes before `deadline`. Returns false
  /// at end of stream, on an error, or when the deadline passes. No SIGPIPE.
  using Deadline = std::chrono::steady_clock::time_point;
  bool send_all(const void* data, size_t size, Deadline deadline);
  bool receive_all(void* data, size_t size, Deadline deadline);

 private:
  int fd_ = -1;
};

/// The socket that listens at an address, and the address with its real port.
struct Listener {
  Socket socket;
  std::string address;
};

/// A host name has no address, or not yet: a cluster's name service may learn a
/// name after the host has started.
class ResolveError : public CommError {
 public:
  ResolveError(const std::string& host, const std::string& cause);

  /// What the name service said.
  const std::string& cause() const {
    return cause_;
  }
  /// "host 'NAME' does not resolve: CAUSE".
  std::string reason() const {
    return "host '" + host_ + "' does not resolve: " + cause_;
  }

 private:
  std::string host_;
  std::string cause_;
};

/// For a loop that waits for a name: says so once, when it has taken seconds.
void warn_if_unresolved_since(
    std::chrono::steady_clock::time_point start, const ResolveError& error);

/// Where a TCP socket listens: at HOST's own address, which must be one of this
/// machine's, or at all that the machine has, where HOST is only how others reach it (a
/// forwarded name).
enum class ListenOn { host, all };

/// Addresses are "unix:PATH" or "tcp:HOST:PORT". Throws ConfigError when the address
/// has another form, is in use or is not this machine's, ResolveError when the host
/// name does not resolve within `timeout`.
Listener listen_at(
    const std::string& address, std::chrono::milliseconds timeout = {},
    ListenOn on = ListenOn::host);

/// One attempt to connect; an empty Socket when nobody listens yet, or when the host
/// says nothing by `deadline`. Throws ConfigError when the address has another form,
/// ResolveError when the host name does not resolve.
Socket connect_once(const std::string& address, Socket::Deadline deadline);

/// The other end's address as text, "" where it has none.
std::string peer_address(int fd);

/// The address of this machine's interface that routes to `host`, as text.
/// Throws CommError when the host does not resolve or cannot be routed to.
std::string local_address_towards(const std::string& host);

}  // namespace tandem
