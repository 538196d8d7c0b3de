#include "tandem/base/store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

using Clock = std::chrono::steady_clock;

namespace {

struct Parsed {
  bool is_unix = false;
  std::string host_or_path;
  std::string port;
};

bool is_port(const std::string& text) {
  return !text.empty() && text.size() <= 5 &&
         text.find_first_not_of("0123456789") == std::string::npos &&
         std::stoi(text) <= 65535;
}

Parsed parse(const std::string& address) {
  if (address.rfind("unix:", 0) == 0 && address.size() > 5) {
    return {true, address.substr(5), ""};
  }
  const size_t colon = address.rfind(':');
  if (address.rfind("tcp:", 0) == 0 && colon > 4) {
    const std::string port = address.substr(colon + 1);
    if (is_port(port)) {
      return {false, address.substr(4, colon - 4), port};
    }
  }
  throw ConfigError(
      "[store] address is '" + address +
      "', expected unix:PATH or tcp:HOST:PORT with a port up to 65535; correct it");
}

constexpr auto kBetweenLookups = std::chrono::milliseconds(200);

using AddrInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddrInfo resolve(const std::string& host, const std::string& port, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (code != 0) {
    throw ResolveError(host, gai_strerror(code));
  }
  return {found, &freeaddrinfo};
}

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    throw ConfigError(
        "[store] socket path '" + path + "' is too long; set TMPDIR to a shorter path");
  }
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  return name;
}

std::string numeric_host(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST];
  getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

int bound_port(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(
      name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                 : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

[[noreturn]] void fail_to_listen(const std::string& address) {
  const std::string advice = errno == EADDRINUSE
                                 ? "choose another port, or 0 for a free one"
                                 : "check the address";
  throw ConfigError(
      "[store] cannot listen at " + address + ": " + std::strerror(errno) + "; " +
      advice);
}

Listener listen_unix(const std::string& address, const std::string& path) {
  const auto name = unix_address(path);
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0) {
    fail_to_listen(address);
  }
  return {std::move(socket), address};
}

bool bind_to(const Socket& socket, const addrinfo& info) {
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return bind(socket.fd(), info.ai_addr, info.ai_addrlen) == 0;
}

[[noreturn]] void fail_to_listen_elsewhere(const std::string& address) {
  throw ConfigError(
      "[store] cannot listen at " + address +
      ", which is not an address of this host; run host 0 (--node-rank 0, RANK 0) on "
      "the machine with that address, or, if it is forwarded to this host, add "
      "--listen-all");
}

Listener listen_tcp(const std::string& address, const Parsed& at, ListenOn on) {
  auto info = resolve(at.host_or_path, at.port, SOCK_STREAM);
  if (on == ListenOn::all) {
    info =
        resolve(info->ai_family == AF_INET6 ? "::" : "0.0.0.0", at.port, SOCK_STREAM);
  }
  Socket socket;
  bool bound = false;
  // A name may also have addresses that do not belong to this host.
  for (const auto* entry = info.get(); entry != nullptr && !bound;
       entry = entry->ai_next) {
    socket = Socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    bound = socket && bind_to(socket, *entry);
    if (!bound && errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) {
      fail_to_listen(address);
    }
  }
  if (!bound) {
    fail_to_listen_elsewhere(address);
  }
  if (listen(socket.fd(), SOMAXCONN) != 0) {
    fail_to_listen(address);
  }
  const std::string port = std::to_string(bound_port(socket.fd()));
  return {std::move(socket), "tcp:" + at.host_or_path + ":" + port};
}

// Calls `move` with the number of bytes that were already transferred, until it has
// transferred `size` bytes. `move` returns the result of send() or recv(). Returns
// false at the end of the stream, on an error, or at the deadline.
template <typename Move>
bool transfer(
    int fd, short events, size_t size, Socket::Deadline deadline, const Move& move) {
  size_t done = 0;
  while (done < size) {
    const ssize_t moved = move(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (
        moved == 0 || (errno != EAGAIN && errno != EINTR) ||
        !wait_until_ready(fd, events, deadline)) {
      return false;
    }
  }
  return true;
}

// Connects. Returns false if the connection is refused or not established by
// `deadline`.
bool connect_by(
    const Socket& socket, const sockaddr* address, socklen_t size,
    Socket::Deadline deadline) {
  const int flags = fcntl(socket.fd(), F_GETFL);
  fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK);
  if (connect(socket.fd(), address, size) != 0) {
    int reason = errno;
    socklen_t reason_size = sizeof(reason);
    if (reason != EINPROGRESS || !wait_until_ready(socket.fd(), POLLOUT, deadline) ||
        getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &reason, &reason_size) != 0 ||
        reason != 0) {
      return false;
    }
  }
  fcntl(socket.fd(), F_SETFL, flags);
  return true;
}

}  // namespace

bool wait_until_ready(int fd, short events, Socket::Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() < 0) {
      return false;
    }
    pollfd entry{fd, events, 0};
    const auto step = std::min<int64_t>(left.count() + 1, 60'000);
    const int ready = poll(&entry, 1, static_cast<int>(step));
    if (ready > 0) {
      return true;
    }
    if (ready < 0 && errno != EINTR) {
      return false;
    }
  }
}

ResolveError::ResolveError(const std::string& host, const std::string& cause)
    : CommError(
          "resolving host '" + host + "'",
          cause +
              "; set --master-addr or MASTER_ADDR to a name or address that resolves"),
      host_(host),
      cause_(cause) {}

void warn_if_unresolved_since(
    std::chrono::steady_clock::time_point start, const ResolveError& error) {
  constexpr auto kPatience = std::chrono::seconds(5);
  if (std::chrono::steady_clock::now() - start > kPatience) {
    log_warning(error.reason() + "; trying again");
  }
}

bool Socket::send_all(const void* data, size_t size, Deadline deadline) {
  const char* from = static_cast<const char*>(data);
  return transfer(fd(), POLLOUT, size, deadline, [&](size_t done) {
    return send(fd(), from + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

bool Socket::receive_all(void* data, size_t size, Deadline deadline) {
  char* to = static_cast<char*>(data);
  return transfer(fd(), POLLIN, size, deadline, [&](size_t done) {
    return recv(fd(), to + done, size - done, MSG_DONTWAIT);
  });
}

Listener listen_at(
    const std::string& address, std::chrono::milliseconds timeout, ListenOn on) {
  const Parsed at = parse(address);
  const auto start = Clock::now();
  for (;;) {
    try {
      return at.is_unix ? listen_unix(address, at.host_or_path)
                        : listen_tcp(address, at, on);
    } catch (const ResolveError& error) {
      if (timeout.count() == 0) {
        throw;
      }
      if (Clock::now() - start >= timeout) {
        throw ResolveError(
            at.host_or_path, fmt::format(
                                 "{}, after {} s", error.cause(),
                                 static_cast<double>(timeout.count()) / 1000));
      }
      warn_if_unresolved_since(start, error);
    }
    std::this_thread::sleep_for(kBetweenLookups);
  }
}

Socket connect_once(const std::string& address, Socket::Deadline deadline) {
  const Parsed at = parse(address);
  if (at.is_unix) {
    const auto name = unix_address(at.host_or_path);
    Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* target = reinterpret_cast<const sockaddr*>(&name);
    if (connect(socket.fd(), target, sizeof(name)) != 0) {
      return {};
    }
    if (is_other_user(socket.fd())) {
      throw ConfigError(
          "[store] another user listens at '" + at.host_or_path +
          "', expected a process of this user; set TMPDIR to a folder that only you "
          "can write");
    }
    return socket;
  }
  const auto info = resolve(at.host_or_path, at.port, SOCK_STREAM);
  int left = 0;
  for (const addrinfo* entry = info.get(); entry != nullptr; entry = entry->ai_next) {
    ++left;
  }
  for (const addrinfo* entry = info.get(); entry != nullptr;
       entry = entry->ai_next, --left) {
    // Divides the time, so that an address that does not answer leaves time for the
    // others.
    const auto now = std::chrono::steady_clock::now();
    const auto share = now + (deadline - now) / left;
    Socket socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect_by(socket, entry->ai_addr, entry->ai_addrlen, share)) {
      const int on = 1;
      setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return socket;
    }
  }
  return {};
}

bool is_other_user(int fd) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof(family);
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
  ucred peer{};
  size = sizeof(peer);
  return family == AF_UNIX &&
         (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
          (peer.uid != geteuid() && peer.uid != 0));
}

std::string peer_address(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  auto* address = reinterpret_cast<sockaddr*>(&name);
  const bool known = getpeername(fd, address, &size) == 0 &&
                     (name.ss_family == AF_INET || name.ss_family == AF_INET6);
  return known ? numeric_host(address, size) : "";
}

std::string local_address_towards(const std::string& host) {
  // Connecting a datagram socket sends nothing; it only chooses the route.
  const auto info = resolve(host, "9", SOCK_DGRAM);
  const Socket socket(::socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (connect(socket.fd(), info->ai_addr, info->ai_addrlen) != 0 ||
      getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &size) != 0) {
    throw CommError("finding the route to '" + host + "'", std::strerror(errno));
  }
  return numeric_host(reinterpret_cast<sockaddr*>(&name), size);
}

}  // namespace tandem
