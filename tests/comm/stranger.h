#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/store/socket.h"
#include "tandem/base/store/store.h"
#include "tests/base/connect_from.h"

namespace tandem {

/// Connects to the port of rank 0 like a port scanner, while a Gloo group of two ranks
/// forms. The connection comes from an address of rank 1's machine or from another
/// address. Until the group forms, the object acts as rank 1 in the store.
class Stranger {
 public:
  /// Registers rank 1 in `store`, the store of the ranks, which must outlive the
  /// object. `group` is the name of the group in the store.
  Stranger(StoreClient& store, std::string group)
      : store_(store), group_(std::move(group)) {
    store_.set(group_ + "/here/1", kRankOne);
  }

  /// Connects to rank 0's port before rank 1 can connect. Returns whether rank 0
  /// accepted the connection.
  bool take_port(int attempt, const char* from = kRankOne) {
    const auto bytes = store_.get(key_of(attempt) + "/0/0", kLongest);
    // The value that Gloo wrote contains rank 0's address as the bytes of a
    // sockaddr_in.
    const size_t at = bytes.find(kLoopback);
    sockaddr_in other{};
    other.sin_family = AF_INET;
    other.sin_addr.s_addr = htonl(0x7f000001);
    std::memcpy(&other.sin_port, bytes.data() + at - sizeof(other.sin_port), 2);
    sockets_.push_back(connect_from(from, other));
    return static_cast<bool>(sockets_.back());
  }
  /// Writes the keys of rank 1 for an attempt, but does not connect to rank 0, so that
  /// the attempt fails.
  void fail(int attempt) {
    const auto name = key_of(attempt);
    auto bytes = store_.get(name + "/0/0", kLongest);
    bytes[bytes.find(kLoopback) + 3] = 5;
    store_.set(name + "/0/1", bytes);
    store_.set(name + "/1", "");
  }

  static constexpr const char* kElsewhere = "127.0.0.2";
  /// Address of rank 1. In Gloo, the rank with the lower address listens, which is rank
  /// 0 at 127.0.0.1.
  static constexpr const char* kRankOne = "127.0.0.5";

 private:
  static inline const std::string kLoopback = std::string("\x7f\0\0\x01", 4);

  static constexpr Milliseconds kLongest{20'000};

  std::string key_of(int attempt) const {
    return group_ + "/attempt" + std::to_string(attempt);
  }

  StoreClient& store_;
  std::string group_;
  std::vector<Socket> sockets_;
};

}  // namespace tandem
