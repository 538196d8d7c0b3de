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

// The rendezvous store is a small key-value table. Ranks use it to find each other
// before they have a communicator, and to report why they failed. tandem's launcher
// runs the server, which therefore outlives every rank. Without tandem's launcher, rank
// 0 runs the server.
//
// Addresses are "unix:PATH" (one host; the path's folder should be private) or
// "tcp:HOST:PORT". By default, TCP listens only on HOST's address (ListenOn). Server
// and client must know the same token (token.h). protocol.h describes the wire
// protocol.

using Milliseconds = std::chrono::milliseconds;

/// Error of a process whose token differs from the store's token. Either the store
/// belongs to another run, or this process did not find the token.
class DeniedError : public ConfigError {
 public:
  explicit DeniedError(const std::string& address);
};

/// Server of the rendezvous store.
class StoreServer {
 public:
  /// Listens, and serves on a separate thread until destroyed.
  ///
  /// `address` "tcp:HOST:0" selects a free port; see address(). Clients that do not
  /// know `token` are rejected in the handshake. `own` is the greeting of this process,
  /// with which the greetings of clients are compared.
  ///
  /// Throws the errors of listen_at().
  explicit StoreServer(
      const std::string& address, const std::string& token = "",
      Milliseconds timeout = {}, ListenOn on = ListenOn::host,
      const std::optional<Greeting>& own = std::nullopt);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Returns the address for clients. If port 0 was requested, the address contains the
  /// port that the kernel selected.
  const std::string& address() const {
    return address_;
  }

  /// Makes the server refuse only the launcher if a launcher's greeting does not match.
  /// Without this call, such a greeting also ends the run if ranks are missing.
  void refuse_only_launchers();

  /// Makes the server log the missing ranks while other ranks wait for them
  /// (wait_notice.h).
  void name_missing_ranks();

  /// Returns whether the run was refused because greetings did not match. If so, first
  /// waits until the other processes have received the reason and disconnected, at most
  /// 15 s.
  bool linger_if_refused() const;

  /// A launcher on another host that has sent its greeting.
  struct Launcher {
    Greeting greeting;
    // True while the launcher's connection is open.
    bool here = true;
    std::chrono::steady_clock::time_point heard;
  };
  /// Returns the launchers, sorted by the number of the host. Thread-safe.
  std::vector<Launcher> launchers() const;

  /// Returns a key's value, nullopt if the key is missing. Thread-safe.
  std::optional<std::string> get(const std::string& key) const;

  /// Sets a key and wakes the clients that wait for it. Thread-safe. Throws CommError
  /// if the store would exceed 64 MiB.
  void set(const std::string& key, const std::string& value);

 private:
  class Table;

  std::string address_;
  std::string unix_path_;
  std::unique_ptr<Table> table_;
  Socket listener_;
  std::thread thread_;
};

/// A client of the rendezvous store. Thread-safe: all calls share one connection, one
/// call at a time.
///
/// All calls throw CommError if the server has ended. A request, with its keys and
/// values, must be smaller than 64 MiB. All keys and values of the store together must
/// also be smaller than 64 MiB.
class StoreClient {
 public:
  /// Connects, and retries until `timeout`, since the server may start later.
  ///
  /// Throws CommError with the address if no server answers in time or the host name
  /// does not resolve in time. Throws DeniedError if the server has another token,
  /// ConfigError if it has another protocol version.
  StoreClient(
      const std::string& address, Milliseconds timeout, const std::string& token = "");

  /// Sends the greeting of this process. Throws ConfigError if the greeting does not
  /// match those of other processes. If this ends the run, get() and wait() of unset
  /// keys throw the same error in all processes of the run.
  void greet(const Greeting& greeting);

  /// Returns the token, which the server also knows.
  const std::string& token() const {
    return token_;
  }

  /// Sets the time for which a call waits for the server's answer, initially 30 s.
  /// get() and wait() end at most 2 s after their argument `timeout`.
  void answer_within(Milliseconds patience) {
    patience_ = patience;
  }

  /// Closes the connection. The current call and all later calls throw CommError.
  /// Thread-safe.
  void hang_up();

  /// Sets a key.
  void set(const std::string& key, const std::string& value);
  /// Waits until a key is set, and returns its value. Throws CommError, with the key or
  /// the missing ranks, if `timeout` passes before.
  std::string get(const std::string& key, Milliseconds timeout);
  /// Waits until all keys are set. Throws CommError, with the keys or the missing
  /// ranks, if `timeout` passes before.
  void wait(const std::vector<std::string>& keys, Milliseconds timeout);

  /// Adds to a key's value, a number stored as decimal text, and returns the sum. A
  /// missing key counts as 0.
  int64_t add(const std::string& key, int64_t amount);

  /// Sets a key to `desired` if its value is `expected`. A missing key has the value
  /// "". Returns the key's value after the call.
  std::string compare_set(
      const std::string& key, const std::string& expected, const std::string& desired);
  /// Returns whether all keys are set.
  bool has(const std::vector<std::string>& keys);
  /// Removes a key. Returns whether the key was set.
  bool remove(const std::string& key);
  /// Returns the number of keys in the store.
  int64_t num_keys();

 private:
  std::string call(
      const std::string& what, const std::string& request, Milliseconds timeout);

  std::string address_;
  std::string token_;
  std::mutex mutex_;
  Socket socket_;
  std::atomic<Milliseconds> patience_{Milliseconds(30'000)};
  std::atomic<bool> gone_{false};
};

}  // namespace tandem
