#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/status/rank_status.h"

namespace tandem {

/// Returns the IP addresses of other machines that acknowledge no data of this user's
/// established TCP connections now. `table` is the content of /proc/net/tcp or
/// /proc/net/tcp6, which has the number of retransmissions of each connection. A
/// suspended process is no reason, because the kernel acknowledges its data.
std::vector<std::string> silent_peers(const std::string& table);

/// Finds a broken link between this host and another host of the run. Launchers other
/// than that of host 0 have no connection with each other, so the connections of ranks
/// show a broken link between them.
class LinkWatch {
 public:
  /// Access to the store of the run.
  struct Store {
    std::function<std::optional<std::string>(const std::string& key)> get;
    std::function<void(const std::string& key, const std::string& value)> set;
  };

  /// `board` contains the statuses of this host's ranks and must outlive the object.
  /// `node` is the number of this host, `members` are the numbers of all hosts, and
  /// `master_addr` is the address of host 0.
  LinkWatch(
      const StatusBoard& board, int node, std::vector<int> members,
      std::string master_addr)
      : board_(board),
        node_(node),
        members_(std::move(members)),
        master_addr_(std::move(master_addr)) {}

  /// Looks for a broken link, at most once a second and only while a rank of this host
  /// waits for other ranks. Call it often, from one thread. Throws the errors of
  /// `store`.
  void look(const Store& store);

  /// Returns the error of a broken link that this or another host has found; "" if
  /// there is none. Thread-safe.
  std::string broken() const;

 private:
  using Clock = std::chrono::steady_clock;

  void publish_address(const Store& store);
  bool has_waiting_rank() const;
  std::string find_broken(const Store& store);

  const StatusBoard& board_;
  const int node_;
  const std::vector<int> members_;
  const std::string master_addr_;
  // Address of this host towards host 0; "" until it is published.
  std::string address_;
  Clock::time_point next_{};
  // Times since which machines acknowledge nothing, by address.
  std::map<std::string, Clock::time_point> silent_;
  mutable std::mutex mutex_;
  std::string broken_;
};

}  // namespace tandem
