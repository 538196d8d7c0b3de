#pragma once

#include <sys/socket.h>

#include <chrono>
#include <future>
#include <string>

#include "tandem/base/store/handshake.h"
#include "tandem/base/store/protocol.h"
#include "tandem/base/store/store.h"
#include "tests/base/test_tools.h"

namespace tandem {

using Clock = std::chrono::steady_clock;

// Maximum time for which a test waits for an event that must happen.
constexpr Milliseconds kLong{10'000};
// Time for which a test waits for an event that must not happen.
constexpr Milliseconds kShort{30};

// Expects that the store server still answers requests.
inline void expect_alive(StoreClient& client) {
  client.set("alive", "yes");
  EXPECT_EQ(client.get("alive", kLong), "yes");
}

inline Socket connect_raw(const std::string& address, const std::string& first_bytes) {
  Socket socket = connect_once(address, Clock::now() + kLong);
  EXPECT_TRUE(socket);
  EXPECT_TRUE(
      socket.send_all(first_bytes.data(), first_bytes.size(), Clock::now() + kLong));
  return socket;
}

inline std::string frame(const std::string& bytes) {
  return store_protocol::encode_length(static_cast<uint32_t>(bytes.size())) + bytes;
}

// Connects to a store server, performs the handshake with `token`, and then sends
// `first_bytes`.
inline Socket connect_trusted(
    const std::string& address, const std::string& token,
    const std::string& first_bytes) {
  Socket socket = connect_once(address, Clock::now() + kLong);
  EXPECT_EQ(
      store_protocol::shake_hands(socket, token, Clock::now() + kLong),
      store_protocol::Handshake::ok);
  EXPECT_TRUE(
      socket.send_all(first_bytes.data(), first_bytes.size(), Clock::now() + kLong));
  return socket;
}

// Accepts one connection and calls `body` with it, in another thread. Returns the
// future result of `body`.
template <typename Body>
auto serve_one(const Listener& listener, const Body& body) {
  return std::async(std::launch::async, [fd = listener.socket.fd(), body] {
    Socket peer(accept(fd, nullptr, nullptr));
    return body(peer);
  });
}

// Performs the store server's part of the handshake with a client.
inline void accept_client(Socket& client, const std::string& token) {
  using namespace store_protocol;
  const auto deadline = Clock::now() + kLong;
  const std::string own = new_nonce();
  std::string bytes;
  EXPECT_TRUE(receive_frame(client, bytes, deadline));
  const auto other = nonce_of_hello(bytes);
  ASSERT_TRUE(other);
  EXPECT_TRUE(send_frame(client, std::string(1, '\0') + own, deadline));
  EXPECT_TRUE(receive_frame(client, bytes, deadline));
  EXPECT_EQ(bytes, proof(Side::client, token, *other, own));
  EXPECT_TRUE(send_frame(
      client, std::string(1, '\0') + proof(Side::server, token, *other, own),
      deadline));
}

// Returns whether the server closes the connection within kLong. Ignores bytes that the
// server has sent before.
inline bool closed_by_server(Socket& socket) {
  const auto deadline = Clock::now() + kLong;
  char byte = 0;
  while (socket.receive_all(&byte, 1, deadline)) {
  }
  return Clock::now() < deadline;
}

}  // namespace tandem
