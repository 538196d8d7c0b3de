#include "tandem/comm/rpc/message_transfer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {

namespace {

// Maximum number of pieces per call of the kernel, which is at most IOV_MAX.
constexpr size_t kMostPieces = 64;

std::vector<iovec> pieces_of(const std::vector<at::Tensor>& tensors) {
  std::vector<iovec> pieces;
  for (const auto& tensor : tensors) {
    pieces.push_back({tensor.data_ptr(), tensor.nbytes()});
  }
  return pieces;
}

[[noreturn]] void fail(const std::string& cause) {
  throw CommError("", cause);
}

}  // namespace

// Calls `move` with the next pieces. `move` returns the result of sendmsg() or
// recvmsg().
template <typename Move>
bool Pieces::transfer(const Move& move) {
  for (;;) {
    while (next_ < pieces_.size() && pieces_[next_].iov_len == 0) {
      ++next_;
    }
    if (next_ == pieces_.size()) {
      return true;
    }
    msghdr header{};
    header.msg_iov = &pieces_[next_];
    header.msg_iovlen = std::min(kMostPieces, pieces_.size() - next_);
    const ssize_t moved = move(header);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
      return false;
    }
    if (moved <= 0) {
      fail(
          moved == 0 || errno == ECONNRESET || errno == EPIPE
              ? "the connection was closed"
              : std::strerror(errno));
    }
    auto left = static_cast<size_t>(moved);
    for (size_t i = next_; left > 0; ++i) {
      auto& piece = pieces_[i];
      const size_t part = std::min(left, piece.iov_len);
      piece.iov_base = static_cast<char*>(piece.iov_base) + part;
      piece.iov_len -= part;
      left -= part;
    }
  }
}

bool Pieces::send_some(int fd) {
  return transfer([&](const msghdr& header) {
    return sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

bool Pieces::receive_some(int fd) {
  return transfer([&](msghdr& header) { return recvmsg(fd, &header, MSG_DONTWAIT); });
}

std::vector<char> Pieces::rest() const {
  std::vector<char> bytes;
  size_t size = 0;
  for (const auto& piece : pieces_) {
    size += piece.iov_len;
  }
  bytes.reserve(size);
  for (const auto& piece : pieces_) {
    const char* from = static_cast<const char*>(piece.iov_base);
    bytes.insert(bytes.end(), from, from + piece.iov_len);
  }
  return bytes;
}

MessageSender::MessageSender(uint64_t id, const RpcMessage& message)
    : message_(encode(id, message)) {
  auto pieces = pieces_of(message_.tensors);
  pieces.insert(pieces.begin(), {message_.text.data(), message_.text.size()});
  pieces_ = Pieces(std::move(pieces));
}

void MessageSender::copy_rest() {
  copy_ = pieces_.rest();
  pieces_ = Pieces({{copy_.data(), copy_.size()}});
  message_ = {};
}

MessageReceiver::MessageReceiver() {
  expect_start();
}

bool MessageReceiver::receive_some(int fd) {
  while (pieces_.receive_some(fd)) {
    if (stage_ == Stage::data) {
      return true;
    }
    next_stage();
  }
  return false;
}

RpcMessage MessageReceiver::take() {
  RpcMessage message = std::move(message_);
  expect_start();
  return message;
}

void MessageReceiver::expect_start() {
  stage_ = Stage::start;
  text_.assign(kFrameStartBytes, '\0');
  pieces_ = Pieces({{text_.data(), text_.size()}});
}

void MessageReceiver::next_stage() {
  if (stage_ == Stage::start) {
    const auto start = decode_start(text_);
    if (!start) {
      fail("the start of a message is invalid");
    }
    stage_ = Stage::description;
    start_ = *start;
    text_.assign(start_.description_bytes, '\0');
    pieces_ = Pieces({{text_.data(), text_.size()}});
    return;
  }
  auto message = decode_description(text_, start_.data_bytes);
  if (!message) {
    fail("the description of a message is invalid");
  }
  stage_ = Stage::data;
  message_ = std::move(*message);
  pieces_ = Pieces(pieces_of(message_.tensors));
}

}  // namespace tandem
