#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "tandem/base/store/socket.h"

namespace tandem {

/// Connects to the IPv4 address `other`. The source of the packets is `address`, an
/// address of this machine. Returns an empty socket if no process accepts the
/// connection within half a second.
inline Socket connect_from(const char* address, const sockaddr_in& other) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, address, &own.sin_addr), 1);
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  const int fd = socket.fd();
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&other), sizeof(other)) != 0) {
    EXPECT_EQ(errno, EINPROGRESS);
    pollfd entry{fd, POLLOUT, 0};
    if (poll(&entry, 1, 500) != 1) {
      return {};
    }
  }
  int failure = 0;
  socklen_t size = sizeof(failure);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
  return failure == 0 ? std::move(socket) : Socket();
}

}  // namespace tandem
