#pragma once

#include <chrono>
#include <string>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"

namespace tandem {

/// Owner of a stream socket. Movable, not copyable.
class Socket : public Descriptor {
 public:
  using Descriptor::Descriptor;

  using Deadline = std::chrono::steady_clock::time_point;

  /// Sends or receives exactly `size` bytes before `deadline`. Returns false at the end
  /// of the stream, on an error, or when the deadline passes. Does not raise SIGPIPE.
  bool send_all(const void* data, size_t size, Deadline deadline);
  bool receive_all(void* data, size_t size, Deadline deadline);
};

/// Waits until poll() reports one of `events`, or an error, for a descriptor. Returns
/// false at the deadline.
bool wait_until_ready(int fd, short events, Socket::Deadline deadline);

/// A listening socket and its address. If port 0 was requested, the address has the
/// port that the kernel selected.
struct Listener {
  Socket socket;
  std::string address;
};

/// Error for a host name that does not resolve. The name may resolve later, because a
/// cluster can register a host's name after the host has started.
class ResolveError : public CommError {
 public:
  ResolveError(const std::string& host, const std::string& cause);

  /// Message of the name service, such as "Name or service not known".
  const std::string& cause() const {
    return cause_;
  }
  /// Returns "host 'NAME' does not resolve: CAUSE".
  std::string reason() const {
    return "host '" + host_ + "' does not resolve: " + cause_;
  }

 private:
  std::string host_;
  std::string cause_;
};

/// Warns once that a host name does not resolve, if more than 5 s have passed since
/// `start`. Call it in each iteration of a loop that waits for the name.
void warn_if_unresolved_since(
    std::chrono::steady_clock::time_point start, const ResolveError& error);

/// Addresses at which a socket for "tcp:HOST:PORT" listens. `host`: only HOST's
/// address, which must belong to this machine. `all`: all addresses of this machine,
/// for a HOST that forwards connections to this machine.
enum class ListenOn { host, all };

/// Listens at an address, "unix:PATH" or "tcp:HOST:PORT". Throws ConfigError if the
/// address has another form, is in use or does not belong to this machine. Throws
/// ResolveError if the host name does not resolve within `timeout`.
Listener listen_at(
    const std::string& address, std::chrono::milliseconds timeout = {},
    ListenOn on = ListenOn::host);

/// Tries once to connect. Returns an empty Socket if no process listens yet, or if the
/// host does not answer by `deadline`. Throws ConfigError if the address is neither
/// "unix:PATH" nor "tcp:HOST:PORT", or if another user listens at the path. Throws
/// ResolveError if the host name does not resolve.
Socket connect_once(const std::string& address, Socket::Deadline deadline);

/// Returns whether the other end of a connection is a Unix socket that neither this
/// user nor root made.
bool is_other_user(int fd);

/// Returns the IP address of the other end of a connection, as text; "" if `fd` is not
/// an IP connection.
std::string peer_address(int fd);

/// Returns this machine's address on the network interface through which it reaches
/// `host`, as text. Throws CommError if the host does not resolve or there is no route
/// to it.
std::string local_address_towards(const std::string& host);

}  // namespace tandem
