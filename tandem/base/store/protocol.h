#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/store/socket.h"

namespace tandem::store_protocol {

// Wire protocol of the rendezvous store, version 3.
//
// A frame is a 32-bit length, then that many bytes. Numbers are little-endian. A text
// is a 32-bit length and its bytes. A connection starts with a handshake (handshake.h)
// of these frames:
//
//   client: "tandem-store 3 ", its nonce (32 bytes)
//   server: Status::ok, its nonce; or Status::other_version
//   client: its proof (32 bytes)
//   server: Status::ok, its proof; or Status::denied
//
// The server closes the connection after any other frame. After the handshake the
// client sends requests, one at a time, and the server answers each with one frame. A
// process that takes part in a run sends Operation::greet first. If the greeting does
// not match those of other processes, the reply is Status::refused with a message. If
// ranks are missing at that time, the run normally ends (see
// StoreServer::refuse_only_launchers()). The server then sends the same reply to all
// later greetings, and to all get and wait requests for keys that are not set.
//
//   request = operation (1 byte), timeout in ms (64 bits), texts (32-bit count,
//             then each)
//   reply   = status (1 byte), value (the rest)

constexpr int kProtocolVersion = 3;
constexpr uint32_t kMaxFrameBytes = 64u << 20;
/// Maximum number of texts in a request.
constexpr uint32_t kMostTexts = 4096;
/// Maximum size of the server's table, in bytes. The size of an entry is the bytes of
/// its key and of its value, plus kEntryBytes.
constexpr size_t kMostTableBytes = size_t{64} << 20;
constexpr size_t kEntryBytes = 128;
/// The server's timeout of a handshake.
constexpr std::chrono::seconds kGreetTime{5};
/// Maximum number of connections whose handshake is not complete. If there are more,
/// the server closes the oldest of these connections.
constexpr size_t kMostStrangers = 256;

/// Operation of a request. Each comment lists the request's texts, then the reply, if
/// there is one.
enum class Operation : uint8_t {
  set = 1,      // key, value
  get,          // key; waits; replies with the value
  wait,         // keys; waits
  add,          // key, amount as decimal text; replies with the sum as text
  compare_set,  // key, expected, desired; replies with the value afterwards
  has,          // keys; replies "1" or "0"
  remove,       // key; replies "1" or "0"
  num_keys,     // replies with the count as text
  greet,        // texts of a Greeting (greeting.h)
};

/// Status of an answer.
enum class Status : uint8_t {
  ok = 0,
  // The request timed out. The value names the ranks that have not joined; "" if no
  // rank is known to be missing.
  timed_out = 1,
  bad_request = 2,
  // The client's proof is wrong. Only in the handshake.
  denied = 3,
  other_version = 4,
  // The greetings of the run's processes do not match; the value has the reason.
  refused = 6,
  // The table would exceed kMostTableBytes.
  full = 5,
};

/// A request to the server.
struct Request {
  Operation operation = Operation::get;
  int64_t timeout_ms = 0;
  std::vector<std::string> texts;
};

/// Encodes a request.
std::string encode(const Request& request);

/// Decodes a request. Returns false if the operation is unknown, the number of texts is
/// wrong or exceeds kMostTexts, or the lengths do not match the bytes. Checks sizes
/// before allocating memory.
bool decode(const std::string& bytes, Request& request);

/// Converts the length of a frame to the bytes at its start, and back.
std::string encode_length(uint32_t length);
uint32_t decode_length(const char* bytes);

/// Sends one frame. Returns false if the frame is not sent completely before
/// `deadline`.
bool send_frame(Socket& socket, const std::string& bytes, Socket::Deadline deadline);

/// Receives one frame. Returns false if no frame arrives before `deadline`, or if its
/// length is 0 or more than `most_bytes`. Checks the length before allocating memory.
bool receive_frame(
    Socket& socket, std::string& bytes, Socket::Deadline deadline,
    uint32_t most_bytes = kMaxFrameBytes);

}  // namespace tandem::store_protocol
