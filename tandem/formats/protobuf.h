#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tandem {

/// Writes a message of Protocol Buffers: for each field, a key with its number and wire
/// type, and its value (https://protobuf.dev/programming-guides/encoding). `field` is
/// the number of the field. All supported processors are little-endian, as the format.
class ProtobufMessage {
 public:
  /// Adds an integer, a boolean or an enumerator.
  void add_integer(int field, int64_t value) {
    add_key(field, 0);
    add_varint(static_cast<uint64_t>(value));
  }

  void add_number(int field, float value) {
    add_key(field, 5);
    add_bytes(&value, sizeof(value));
  }
  void add_number(int field, double value) {
    add_key(field, 1);
    add_bytes(&value, sizeof(value));
  }

  /// Adds a text or a message.
  void add(int field, const std::string& text) {
    add(field, text.data(), text.size());
  }
  void add(int field, const ProtobufMessage& message) {
    add(field, message.bytes_);
  }
  /// Adds `size` bytes.
  void add(int field, const void* data, size_t size) {
    add_key(field, 2);
    add_varint(size);
    add_bytes(data, size);
  }

  /// Returns the bytes of the message.
  const std::string& bytes() const {
    return bytes_;
  }
  /// Returns the bytes of the message, and empties the message.
  std::string take() {
    return std::exchange(bytes_, {});
  }

 private:
  void add_key(int field, int wire_type) {
    add_varint(static_cast<uint64_t>(field << 3 | wire_type));
  }
  void add_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>(value | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }
  void add_bytes(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }

  std::string bytes_;
};

}  // namespace tandem
