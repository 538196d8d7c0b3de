#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "tandem/base/store/greeting.h"
#include "tandem/base/store/protocol.h"
#include "tandem/base/store/socket.h"

namespace tandem {

/// One client of the store's server: turns bytes into frames and back. Used by
/// the server's thread only.
///
/// It holds at most one frame more than it was asked for: a client that sends
/// without reading its answers fills its own buffers, not the server's.
class StoreConnection {
 public:
  /// `socket` does not block. A frame of the handshake longer than
  /// `most_handshake_bytes` closes the connection: a stranger gets no memory.
  StoreConnection(Socket socket, size_t most_handshake_bytes);

  /// Reads what has come, to the end of the current frame or a little further.
  void receive();

  /// Takes the next frame. False while none is complete, while a get or wait is
  /// pending, and while too many answers wait to be sent.
  bool next_frame(std::string& frame);

  void reply(store_protocol::Status status, const std::string& value = "");

  /// Sends what the socket takes.
  void send_out();

  /// What to poll the socket for.
  short events() const;
  int fd() const {
    return socket_.fd();
  }

  /// Whether next_frame() has one without reading more from the socket.
  bool has_frame() const;

  /// The client has shown that it knows the token: from now on frames may be large.
  void trust() {
    trusted = true;
    most_frame_bytes_ = store_protocol::kMaxFrameBytes;
  }

  bool trusted = false;
  /// When a connection that is not trusted yet is closed.
  std::chrono::steady_clock::time_point trust_by =
      std::chrono::steady_clock::now() + store_protocol::kGreetTime;
  /// Both sides' nonces, once the client has said hello.
  std::string client_nonce;
  std::string server_nonce;
  /// Set to close when the last answer has been sent.
  bool leaving = false;
  bool closing = false;
  /// Who the client is, once it has said so and fits the others.
  std::optional<Greeting> greeting;
  /// Set while a get or wait has no answer yet.
  std::optional<store_protocol::Request> pending;
  std::chrono::steady_clock::time_point deadline;

 private:
  size_t frame_end() const;
  bool oversize() const;

  Socket socket_;
  size_t most_frame_bytes_;
  std::string input_;
  std::string output_;
};

}  // namespace tandem
