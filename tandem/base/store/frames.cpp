#include "tandem/base/store/frames.h"

namespace tandem::store_protocol {

bool send_frame(Socket& socket, const std::string& bytes, Socket::Deadline deadline) {
  const auto frame = encode_length(static_cast<uint32_t>(bytes.size())) + bytes;
  return socket.send_all(frame.data(), frame.size(), deadline);
}

bool receive_frame(
    Socket& socket, std::string& bytes, Socket::Deadline deadline,
    uint32_t most_bytes) {
  char header[4];
  if (!socket.receive_all(header, sizeof(header), deadline)) {
    return false;
  }
  const uint32_t length = decode_length(header);
  if (length == 0 || length > most_bytes) {
    return false;
  }
  bytes.resize(length);
  return socket.receive_all(bytes.data(), length, deadline);
}

}  // namespace tandem::store_protocol
