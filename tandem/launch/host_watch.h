#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/store/store.h"
#include "tandem/base/wait_notice.h"
#include "tandem/launch/host_ending.h"

namespace tandem {

/// Key in the store of host 0 that is set when the ranks of all hosts must end.
constexpr const char* kRunOver = "launch/over";

/// Coordinates the launchers of a run's hosts through the store of host 0. If the ranks
/// of one host fail, or one host does not answer for `timeout`, all launchers end their
/// ranks. All launchers report the same reason, which host 0 selects. In a run on one
/// host, the object only calls the argument `decide` of agree().
///
/// Until all hosts have joined, the launchers log the numbers of the missing hosts
/// (wait_notice.h).
///
/// If a host is lost, it cannot receive the reason. Both host 0 and the lost host then
/// report that they have lost contact.
class HostWatch {
 public:
  struct Options {
    // Number of this host, and numbers of all hosts of the run in ascending order, which
    // is the order of their ranks.
    int node = 0;
    std::vector<int> members = {0};
    // Number of ranks per host.
    int nproc = 1;
    std::string master_addr;
    // Address of host 0's store, and the token for it.
    std::string store;
    std::string token;
    // Time without an answer after which a host counts as lost.
    Milliseconds timeout{15'000};
    // Time at which this host began to wait for the other hosts.
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    Greeting greeting;
    // Called often, in the object's thread, on hosts other than 0, with a connection to
    // the store.
    std::function<void(StoreClient&)> exchange = [](StoreClient&) {};
  };

  /// `server` is the store's server on host 0, and null on other hosts. `client` is a
  /// connection to the store on a host other than 0; if it is null, the object makes
  /// its own connection. Both must outlive the object. The object uses `client` in a
  /// separate thread.
  HostWatch(Options options, StoreServer* server, StoreClient* client);
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  /// Returns whether this host's ranks must end because another host has failed or is
  /// lost. `failed` is true if a rank of this host has failed; the call then reports
  /// the failure to the other hosts. Never waits.
  bool must_end(bool failed);

  /// Waits at most two seconds for the next answer of host 0. If there is none, host 0
  /// counts as lost. Call it after a signal stopped the launcher.
  void hurry();

  /// Waits for the next answer of host 0, or until host 0 is lost. Returns the reason
  /// why host 0 is lost, or "" if it answered. On host 0, returns "" immediately.
  std::string lost();

  /// Returns the number of the host that host 0 has lost first. Call it on host 0, from
  /// the argument `decide` of agree().
  std::optional<int> lost_host() const {
    return lost_host_;
  }

  /// Returns the numbers of the hosts that leave the run (HostEnding::leaves). Call it
  /// as lost_host().
  const std::vector<int>& leaving_hosts() const {
    return leaving_hosts_;
  }

  /// Waits until the ranks of all reachable hosts have ended, or `stop` returns true.
  /// `mine` is the HostEnding of this host. Returns the HostEnding that explains the
  /// end of the run. All hosts that reach host 0 get the same result. Host 0 calls
  /// `decide`, which can change the result, before the other hosts get the result.
  HostEnding agree(
      const HostEnding& mine, const std::function<bool()>& stop,
      const std::function<void(HostEnding&)>& decide = [](HostEnding&) {});

 private:
  using Clock = std::chrono::steady_clock;

  bool is_first() const {
    return options_.node == 0;
  }
  bool is_alone() const {
    return options_.members.size() == 1;
  }
  // Returns the launchers of the other hosts of this run that have joined.
  std::vector<StoreServer::Launcher> launchers() const;
  std::string ranks_of(int node) const;
  std::string host(int node, const std::string& where) const;
  std::string unreachable(int node, const std::string& name) const;
  void find_lost();
  void name_missing_hosts();
  void repeat_missing_hosts();
  std::optional<HostEnding> choose(const HostEnding& mine);
  void give_verdict(const HostEnding& verdict);
  // An answer of host 0 to another host.
  struct News {
    // True if the ranks of all hosts must end.
    bool over = false;
    std::optional<HostEnding> verdict;
  };
  News exchange_news(bool failed, const HostEnding* mine);
  void follow();
  void talk();
  // Implementations of agree() on host 0 and on the other hosts.
  HostEnding judge(
      const HostEnding& mine, const std::function<bool()>& stop,
      const std::function<void(HostEnding&)>& decide);
  HostEnding await_verdict(const HostEnding& mine, const std::function<bool()>& stop);
  std::unique_ptr<StoreClient> connect();

  const Options options_;
  // Only one thread uses notice_, missing_ and all_have_come_: the caller's thread on
  // host 0, and this object's thread on other hosts.
  WaitNotice notice_;
  // The last logged line about missing hosts.
  std::string missing_;
  bool all_have_come_ = false;
  // True after this host has reported its failure, or its end, to host 0. Only this
  // object's thread uses reported_failure_ and reported_end_.
  bool reported_failure_ = false;
  bool reported_end_ = false;
  // Only host 0 uses lost_host_ and leaving_hosts_, in the caller's thread.
  std::optional<int> lost_host_;
  std::vector<int> leaving_hosts_;
  StoreServer* server_;
  StoreClient* client_;
  std::unique_ptr<StoreClient> own_client_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // State of this host's ranks, which is reported to the other hosts.
  bool failed_ = false;
  std::optional<HostEnding> mine_;
  // News from the other hosts: whether all ranks must end, why a host is lost, and the
  // verdict.
  bool over_ = false;
  std::string lost_;
  std::optional<HostEnding> verdict_;
  // Number of answers that host 0 has sent.
  int64_t rounds_ = 0;
  // True if this object's thread sends nothing more to host 0.
  bool silent_ = false;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace tandem
