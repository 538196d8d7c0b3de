#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tandem/comm/rpc/message_encoding.h"
#include "tandem/comm/rpc/rpc.h"

namespace tandem {

/// Memory of several parts, and the position up to which it was sent or received.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::vector<iovec> pieces) : pieces_(std::move(pieces)) {}

  /// Sends or receives without waiting, until the end of the pieces or until the socket
  /// has no room or no data. Returns whether the end is reached. Throws CommError if
  /// the connection has ended.
  bool send_some(int fd);
  bool receive_some(int fd);

  /// Returns a copy of the bytes after the position.
  std::vector<char> rest() const;

 private:
  template <typename Move>
  bool transfer(const Move& move);

  std::vector<iovec> pieces_;
  size_t next_ = 0;
};

/// Sends a message through a non-blocking connection, without copying its tensors.
class MessageSender {
 public:
  /// `id` is the number of the request. Throws the errors of encode().
  MessageSender(uint64_t id, const RpcMessage& message);
  MessageSender(const MessageSender&) = delete;
  MessageSender& operator=(const MessageSender&) = delete;

  /// Sends as much as the socket accepts. Returns whether the message is sent
  /// completely. Throws CommError if the connection has ended.
  bool send_some(int fd) {
    return pieces_.send_some(fd);
  }

  /// Copies the data that are not sent, so that the message's tensors may change.
  void copy_rest();

 private:
  EncodedMessage message_;
  std::vector<char> copy_;
  Pieces pieces_;
};

/// Receives messages from a connection, one after another.
class MessageReceiver {
 public:
  MessageReceiver();
  MessageReceiver(const MessageReceiver&) = delete;
  MessageReceiver& operator=(const MessageReceiver&) = delete;

  /// Receives the data that have arrived, until the end of the current message. Returns
  /// whether the message is complete. Throws CommError if the connection has ended or
  /// the data are not a message.
  bool receive_some(int fd);

  /// Returns the number of the request of the complete message.
  uint64_t id() const {
    return start_.id;
  }
  /// Returns the complete message, and begins the next message.
  RpcMessage take();

 private:
  enum class Stage { start, description, data };

  void expect_start();
  void next_stage();

  Stage stage_ = Stage::start;
  FrameStart start_;
  // Start or description.
  std::string text_;
  RpcMessage message_;
  Pieces pieces_;
};

}  // namespace tandem
