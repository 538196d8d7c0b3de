#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::store_protocol {

/// Wire protocol of the rendezvous store, version 1.
///
/// A connection starts with the client's frame "tandem-store 1 TOKEN"; the
/// server answers with a frame holding Status::ok, or closes. Then the client
/// sends requests, one at a time, each answered by one frame. A frame is a
/// 32-bit length, then that many bytes. Numbers are little-endian; a text is a
/// 32-bit length and its bytes.
///
///   request = operation (1 byte), timeout in ms (64 bits), texts (32-bit count,
///             then each)
///   reply   = status (1 byte), value (the rest)

constexpr uint32_t kMaxFrameBytes = 64u << 20;

enum class Operation : uint8_t {
  set = 1,      // key, value
  get,          // key; waits
  wait,         // keys; waits
  add,          // key, amount as decimal text; replies with the sum as text
  compare_set,  // key, expected, desired; replies with the value afterwards
  has,          // keys; replies "1" or "0"
  remove,       // key; replies "1" or "0"
  num_keys,     // replies with the count as text
};

enum class Status : uint8_t { ok = 0, timed_out = 1, bad_request = 2 };

struct Request {
  Operation operation = Operation::get;
  int64_t timeout_ms = 0;
  std::vector<std::string> texts;
};

std::string hello(const std::string& token);

std::string encode(const Request& request);

/// Returns false when the bytes are not a whole, valid request: an unknown
/// operation, a wrong number of texts, lengths that do not add up.
bool decode(const std::string& bytes, Request& request);

std::string encode_length(uint32_t length);
uint32_t decode_length(const char* bytes);

}  // namespace tandem::store_protocol
