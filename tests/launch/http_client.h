#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "tandem/base/store/socket.h"

namespace tandem {

/// Returns all bytes that arrive until the other process closes the connection, for at
/// most 10 s.
inline std::string receive_all_of(Socket& socket) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::string text;
  for (char next = 0; socket.receive_all(&next, 1, deadline);) {
    text += next;
  }
  return text;
}

inline Socket connect_to_address(const std::string& address) {
  return connect_once(
      "tcp:" + address, std::chrono::steady_clock::now() + std::chrono::seconds(5));
}

/// Sends a text to HOST:PORT and returns the answer; "" if the connection fails.
inline std::string answer_of(const std::string& address, const std::string& text) {
  auto socket = connect_to_address(address);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  return socket && socket.send_all(text.data(), text.size(), deadline)
             ? receive_all_of(socket)
             : "";
}

/// Returns the body of the answer to a GET request; "" if its code is not 200.
inline std::string page_at(const std::string& address, const std::string& path) {
  const auto answer = answer_of(address, "GET " + path + " HTTP/1.1\r\n\r\n");
  return answer.rfind("HTTP/1.1 200 ", 0) == 0
             ? answer.substr(answer.find("\r\n\r\n") + 4)
             : "";
}

/// Returns the port of an IPv4 socket.
inline int port_of(const Socket& socket) {
  sockaddr_in name{};
  socklen_t size = sizeof(name);
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.sin_port);
}

}  // namespace tandem
