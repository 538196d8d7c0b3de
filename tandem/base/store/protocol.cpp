#include "tandem/base/store/protocol.h"

namespace tandem::store_protocol {

namespace {

template <typename Int>
void put(std::string& bytes, Int value) {
  for (size_t i = 0; i < sizeof(Int); ++i) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename Int>
Int take(const char* bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Int); ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return static_cast<Int>(value);
}

bool count_fits(Operation operation, size_t count) {
  switch (operation) {
    case Operation::set:
    case Operation::add:
      return count == 2;
    case Operation::get:
    case Operation::remove:
      return count == 1;
    case Operation::compare_set:
      return count == 3;
    case Operation::wait:
    case Operation::has:
      return count >= 1;
    case Operation::num_keys:
      return count == 0;
    case Operation::greet:
      return count >= 1;
  }
  return false;
}

constexpr size_t kHeaderBytes = 1 + 8 + 4;

}  // namespace

std::string encode(const Request& request) {
  std::string bytes;
  put(bytes, static_cast<uint8_t>(request.operation));
  put(bytes, request.timeout_ms);
  put(bytes, static_cast<uint32_t>(request.texts.size()));
  for (const auto& text : request.texts) {
    put(bytes, static_cast<uint32_t>(text.size()));
    bytes += text;
  }
  return bytes;
}

bool decode(const std::string& bytes, Request& request) {
  if (bytes.size() < kHeaderBytes) {
    return false;
  }
  request.operation = static_cast<Operation>(bytes[0]);
  request.timeout_ms = take<int64_t>(bytes.data() + 1);
  const auto count = take<uint32_t>(bytes.data() + 9);
  request.texts.clear();
  if (count > kMostTexts || count > (bytes.size() - kHeaderBytes) / 4 ||
      !count_fits(request.operation, count)) {
    return false;
  }
  size_t at = kHeaderBytes;
  for (uint32_t i = 0; i < count; ++i) {
    if (bytes.size() - at < 4) {
      return false;
    }
    const auto length = take<uint32_t>(bytes.data() + at);
    at += 4;
    if (bytes.size() - at < length) {
      return false;
    }
    request.texts.push_back(bytes.substr(at, length));
    at += length;
  }
  return at == bytes.size();
}

std::string encode_length(uint32_t length) {
  std::string bytes;
  put(bytes, length);
  return bytes;
}

uint32_t decode_length(const char* bytes) {
  return take<uint32_t>(bytes);
}

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
