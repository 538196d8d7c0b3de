#include "tandem/base/store/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tandem/base/store/handshake.h"

namespace tandem {

namespace {

using store_protocol::Side;
using store_protocol::Status;

constexpr size_t kLengthBytes = 4;

}  // namespace

StoreConnection::StoreConnection(Socket socket, size_t most_handshake_bytes)
    : socket_(std::move(socket)), most_frame_bytes_(most_handshake_bytes) {}

// Returns the end of the frame at the start of `input_`.
size_t StoreConnection::frame_end() const {
  return input_.size() < kLengthBytes
             ? kLengthBytes
             : kLengthBytes + store_protocol::decode_length(input_.data());
}

bool StoreConnection::oversize() const {
  return frame_end() > kLengthBytes + most_frame_bytes_;
}

void StoreConnection::receive() {
  char buffer[1 << 16];
  while (input_.size() < frame_end() && !oversize()) {
    // Reads only the current frame from an untrusted client.
    const size_t most = trusted ? sizeof(buffer) : frame_end() - input_.size();
    const ssize_t got = recv(fd(), buffer, std::min(most, sizeof(buffer)), 0);
    if (got <= 0) {
      closing = closing || got == 0 || (errno != EAGAIN && errno != EINTR);
      return;
    }
    input_.append(buffer, static_cast<size_t>(got));
  }
}

bool StoreConnection::has_frame() const {
  return !closing && !leaving && !pending &&
         output_.size() <= store_protocol::kMaxFrameBytes &&
         input_.size() >= frame_end();
}

bool StoreConnection::next_frame(std::string& frame) {
  closing = closing || oversize();
  if (!has_frame()) {
    return false;
  }
  const size_t end = frame_end();
  frame = input_.substr(kLengthBytes, end - kLengthBytes);
  input_.erase(0, end);
  return true;
}

void StoreConnection::reply(store_protocol::Status status, const std::string& value) {
  output_ += store_protocol::encode_length(static_cast<uint32_t>(1 + value.size()));
  output_.push_back(static_cast<char>(status));
  output_ += value;
}

void StoreConnection::send_out() {
  size_t sent = 0;
  while (sent < output_.size()) {
    const ssize_t got =
        send(fd(), output_.data() + sent, output_.size() - sent, MSG_NOSIGNAL);
    if (got <= 0) {
      closing = closing || (errno != EAGAIN && errno != EINTR);
      break;
    }
    sent += static_cast<size_t>(got);
  }
  output_.erase(0, sent);
  closing = closing || (leaving && output_.empty());
}

bool StoreConnection::shake_hands(const std::string& frame, const std::string& token) {
  if (client_nonce.empty()) {
    if (const auto nonce = store_protocol::nonce_of_hello(frame)) {
      client_nonce = *nonce;
      server_nonce = store_protocol::new_nonce();
      reply(Status::ok, server_nonce);
    } else if (store_protocol::is_other_version(frame)) {
      reply(Status::other_version);
      leaving = true;
    } else {
      closing = true;
    }
    return true;
  }
  const auto proof = [&](Side side) {
    return store_protocol::proof(side, token, client_nonce, server_nonce);
  };
  if (!store_protocol::is_same(frame, proof(Side::client))) {
    reply(Status::denied);
    leaving = true;
    return false;
  }
  trust();
  reply(Status::ok, proof(Side::server));
  return true;
}

short StoreConnection::events() const {
  const int in = input_.size() < frame_end() ? POLLIN : 0;
  const int out = output_.empty() ? 0 : POLLOUT;
  return static_cast<short>(in | out);
}

}  // namespace tandem
