#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "tandem/base/store/greeting.h"
#include "tandem/base/store/protocol.h"
#include "tandem/base/store/socket.h"

namespace tandem {

/// A connection of the store's server to one client: converts bytes to frames and back.
/// Only the server's thread uses it.
///
/// Reading stops while a whole frame is in the input, and while too many answers wait
/// to be sent. So a client that does not read its answers fills its own buffers, not
/// the server's.
class StoreConnection {
 public:
  /// `socket` is non-blocking. A handshake frame longer than `most_handshake_bytes`
  /// closes the connection, so that an untrusted client cannot fill the server's
  /// memory.
  StoreConnection(Socket socket, size_t most_handshake_bytes);

  /// Reads the bytes that have arrived: the rest of the current frame, and possibly the
  /// start of the next frame.
  void receive();

  /// Moves the next frame from the input to `frame`. Returns false while no frame is
  /// complete, while a get or wait is pending, while too many answers wait to be sent,
  /// and when the connection is to be closed.
  bool next_frame(std::string& frame);

  /// Queues an answer.
  void reply(store_protocol::Status status, const std::string& value = "");

  /// Sends as much of the queued answers as the socket accepts.
  void send_out();

  /// Returns the events for which to poll the socket (POLLIN, POLLOUT).
  short events() const;
  int fd() const {
    return socket_.fd();
  }

  /// Returns whether next_frame() would return a frame.
  bool has_frame() const;

  /// Marks the client as trusted, after it has proved that it knows the token. The
  /// client's frames may then have up to kMaxFrameBytes bytes.
  void trust() {
    trusted = true;
    most_frame_bytes_ = store_protocol::kMaxFrameBytes;
  }

  /// Handles a frame of the client's handshake (handshake.h). Trusts the client if its
  /// proof is right. Returns false if the proof is wrong.
  bool shake_hands(const std::string& frame, const std::string& token);

  /// Returns the socket. Call it when no frame and no answer is in a buffer, and
  /// destroy the object then.
  Socket take_socket() {
    return std::move(socket_);
  }

  bool trusted = false;
  /// Time at which the connection is closed if it is not trusted by then.
  std::chrono::steady_clock::time_point trust_by =
      std::chrono::steady_clock::now() + store_protocol::kGreetTime;
  /// Nonces of both sides, set after the client's hello.
  std::string client_nonce;
  std::string server_nonce;
  /// True if the connection closes after the last answer is sent.
  bool leaving = false;
  bool closing = false;
  /// The client's greeting, set after the server has accepted it.
  std::optional<Greeting> greeting;
  /// Request `get` or `wait` that the server has not yet answered.
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
