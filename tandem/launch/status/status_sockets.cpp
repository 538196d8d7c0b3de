#include "tandem/launch/status/status_sockets.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/sha256.h"

namespace tandem {

namespace {

[[noreturn]] void fail_to_serve(
    const std::string& address, int port, const std::string& cause) {
  throw ConfigError(fmt::format(
      "[launch] cannot serve metrics at {}:{}: {}; change --metrics-port or "
      "--metrics-address",
      address, port, cause));
}

struct LocalName {
  sockaddr_un address{};
  socklen_t size = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&address);
  }
};

// Returns the same path for all paths of a directory, which need not exist.
std::string unique_path(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  // weakly_canonical() does not make a path absolute if no part of it exists.
  const auto path = fs::weakly_canonical(fs::absolute(directory, error), error);
  return (path.has_filename() ? path : path.parent_path()).string();
}

// Containers can have different directories with one path, so the name contains the
// identity of the container.
LocalName local_name(const std::string& directory) {
  const std::string text =
      fmt::format("{}\n{}\n{}", host_identity(), geteuid(), unique_path(directory));
  const std::string name = "tandem/" + sha256_hex(text.data(), text.size());
  LocalName local;
  local.address.sun_family = AF_UNIX;
  // The name follows a zero byte, which marks an abstract name.
  std::memcpy(local.address.sun_path + 1, name.data(), name.size());
  local.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return local;
}

}  // namespace

Socket listen_for_metrics(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    fail_to_serve(address, port, gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> info(found, &freeaddrinfo);
  Socket listener(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.fd(), info->ai_addr, info->ai_addrlen) != 0 ||
      listen(listener.fd(), SOMAXCONN) != 0) {
    fail_to_serve(address, port, std::strerror(errno));
  }
  return listener;
}

Socket listen_for_run(const std::string& directory) {
  const auto name = local_name(directory);
  Socket listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool listens = bind(listener.fd(), name.get(), name.size) == 0 &&
                       listen(listener.fd(), SOMAXCONN) == 0;
  return listens ? std::move(listener) : Socket();
}

Socket connect_to_run(const std::string& directory) {
  const auto name = local_name(directory);
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected =
      connect(socket.fd(), name.get(), name.size) == 0 && is_trusted(socket.fd());
  return connected ? std::move(socket) : Socket();
}

bool is_trusted(int fd) {
  return !is_other_user(fd);
}

}  // namespace tandem
