#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/store/greeting.h"
#include "tandem/base/store/socket.h"

namespace tandem {

/// The rendezvous store: a small key-value table over which ranks find each
/// other before they have a communicator, and over which they report why they
/// failed. The launcher runs the server, so it outlives every rank; without a
/// launcher rank 0 runs it.
///
/// Addresses are "unix:PATH" (one host; the path's folder should be private) or
/// "tcp:HOST:PORT". TCP listens on HOST's address only (listen_at()). Both sides must
/// know the same token, which token.h finds. The wire protocol is described in
/// protocol.h.

using Milliseconds = std::chrono::milliseconds;

/// The store that answers has another token: another run's, or ours was not found.
class DeniedError : public ConfigError {
 public:
  explicit DeniedError(const std::string& address);
};

class StoreServer {
 public:
  /// Listens and serves from a thread of its own until destroyed.
  ///
  /// `address` "tcp:HOST:0" takes a free port; see address(). Whoever does
  /// not know `token` gets no further than the handshake.
  ///
  /// Throws ConfigError when the address has another form or is in use,
  /// CommError when the host name does not resolve within `timeout`.
  explicit StoreServer(
      const std::string& address, const std::string& token = "",
      Milliseconds timeout = {}, ListenOn on = ListenOn::host);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Where clients can connect, with the real port.
  const std::string& address() const {
    return address_;
  }

  /// The owner's part in the run, before clients come.
  void greet(const Greeting& greeting);

  /// Starts to log the ranks for which the others wait (wait_notice.h).
  void name_missing_ranks();

  /// Whether the ranks did not fit together. Stays a moment then: those on other hosts
  /// are still to hear of it.
  bool linger_if_refused() const;

  /// Another host's launcher, once it has greeted.
  struct Launcher {
    Greeting greeting;
    // Its connection is open.
    bool here = true;
    std::chrono::steady_clock::time_point heard;
  };
  /// By number of the host. Any thread.
  std::vector<Launcher> launchers() const;

  /// A key's value, nullopt while it is missing. Any thread.
  std::optional<std::string> get(const std::string& key) const;

  /// Sets a key and wakes the clients that wait for it. Any thread. Throws CommError
  /// when the store would hold more than 64 MiB.
  void set(const std::string& key, const std::string& value);

 private:
  class Table;

  std::string address_;
  std::string unix_path_;
  std::unique_ptr<Table> table_;
  Socket listener_;
  std::thread thread_;
};

class StoreClient {
 public:
  /// Connects, trying again until `timeout`: the server may start later.
  ///
  /// Throws CommError that names the address when nobody answers in time, or its
  /// host name does not resolve by then, DeniedError when the server has another token,
  /// ConfigError when it is of another version.
  StoreClient(
      const std::string& address, Milliseconds timeout, const std::string& token = "");

  /// Tells the server who this is. Throws ConfigError, as get() and wait() do from then
  /// on, where that does not fit the others.
  void greet(const Greeting& greeting);

  /// How long the network may take for an answer; 30 s at first. A call that waits for
  /// a key gets 2 s more than it waits, at most.
  void answer_within(Milliseconds patience) {
    patience_ = patience;
  }

  /// Ends the call that waits, and all that come: they throw CommError. Any thread.
  void hang_up();

  /// All calls may come from any thread; they take turns on one connection.
  /// All throw CommError when the server is gone, and get() and wait() also
  /// when `timeout` passes first, naming the keys. A request, with its keys and
  /// values, holds less than 64 MiB, and so do all the store's keys and values.
  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key, Milliseconds timeout);
  void wait(const std::vector<std::string>& keys, Milliseconds timeout);

  /// Adds to a number kept as decimal text; a missing key counts as 0.
  int64_t add(const std::string& key, int64_t amount);

  /// Sets `desired` if the value is `expected` (a missing key counts as "");
  /// returns the value afterwards.
  std::string compare_set(
      const std::string& key, const std::string& expected, const std::string& desired);
  bool has(const std::vector<std::string>& keys);
  bool remove(const std::string& key);
  int64_t num_keys();

 private:
  std::string call(
      const std::string& what, const std::string& request, Milliseconds timeout);

  std::string address_;
  std::mutex mutex_;
  Socket socket_;
  std::atomic<Milliseconds> patience_{Milliseconds(30'000)};
  std::atomic<bool> gone_{false};
};

}  // namespace tandem
