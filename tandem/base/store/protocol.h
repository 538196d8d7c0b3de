#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/store/socket.h"

namespace tandem::store_protocol {

/// Wire protocol of the rendezvous store, version 3.
///
/// A frame is a 32-bit length, then that many bytes. Numbers are little-endian; a text
/// is a 32-bit length and its bytes. A connection starts with a handshake
/// (handshake.h), whose frames are
///
///   client: "tandem-store 3 ", its nonce (32 bytes)
///   server: Status::ok, its nonce; or Status::other_version
///   client: its proof (32 bytes)
///   server: Status::ok, its proof; or Status::denied
///
/// and the server closes after anything else. Then the client sends requests, one at a
/// time, each answered by one frame. Who takes part in a run greets first. While ranks
/// are still missing, a greeting that does not fit ends the run: it, all that wait and
/// all that come get Status::refused with a line.
///
///   request = operation (1 byte), timeout in ms (64 bits), texts (32-bit count,
///             then each)
///   reply   = status (1 byte), value (the rest)

constexpr int kProtocolVersion = 3;
constexpr uint32_t kMaxFrameBytes = 64u << 20;
/// Keys of one request, or a key and its values.
constexpr uint32_t kMostTexts = 4096;
/// What a server holds, each key with its value and a little for the entry itself.
constexpr size_t kMostTableBytes = size_t{64} << 20;
constexpr size_t kEntryBytes = 128;
/// How long a connection may take for the handshake, and how many may be at it at once:
/// one more, and the oldest goes.
constexpr std::chrono::seconds kGreetTime{5};
constexpr size_t kMostStrangers = 256;

enum class Operation : uint8_t {
  set = 1,      // key, value
  get,          // key; waits
  wait,         // keys; waits
  add,          // key, amount as decimal text; replies with the sum as text
  compare_set,  // key, expected, desired; replies with the value afterwards
  has,          // keys; replies "1" or "0"
  remove,       // key; replies "1" or "0"
  num_keys,     // replies with the count as text
  greet,        // what greeting.h makes of a process
};

enum class Status : uint8_t {
  ok = 0,
  // The value names the ranks that have not arrived, "" when all have.
  timed_out = 1,
  bad_request = 2,
  // In the handshake only.
  denied = 3,
  other_version = 4,
  // The run's ranks do not fit together; the value says how.
  refused = 6,
  // The table would hold more than it may.
  full = 5,
};

struct Request {
  Operation operation = Operation::get;
  int64_t timeout_ms = 0;
  std::vector<std::string> texts;
};

std::string encode(const Request& request);

/// Returns false when the bytes are not a whole, valid request: an unknown
/// operation, a wrong number of texts or more than kMostTexts, lengths that do not add
/// up. What they declare is checked before memory is taken for it.
bool decode(const std::string& bytes, Request& request);

std::string encode_length(uint32_t length);
uint32_t decode_length(const char* bytes);

/// Sends one frame. False when it does not leave before `deadline`.
bool send_frame(Socket& socket, const std::string& bytes, Socket::Deadline deadline);

/// Receives one frame. False when none comes before `deadline`, or one that says it is
/// empty or longer than `most_bytes`; memory is taken only after that is known.
bool receive_frame(
    Socket& socket, std::string& bytes, Socket::Deadline deadline,
    uint32_t most_bytes = kMaxFrameBytes);

}  // namespace tandem::store_protocol
