#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tandem/base/store/store.h"
#include "tandem/base/wait_notice.h"
#include "tandem/launch/host_ending.h"

namespace tandem {

/// Keeps the launchers of a run's hosts together, over the store of host 0's: when the
/// ranks of one fail, or one is not heard of for `timeout`, all end theirs, and all say
/// the same reason, which host 0 chooses. On one host there is nothing to do.
///
/// While hosts are missing, all other hosts log their numbers (wait_notice.h).
///
/// A host that is lost cannot be told anything: each side then names both.
class HostWatch {
 public:
  struct Options {
    int node = 0;
    int nnodes = 1;
    int nproc = 1;
    std::string master_addr;
    // Where host 0's store is, and what lets us in.
    std::string store;
    std::string token;
    Milliseconds timeout{300'000};
    // When this host began to wait for others.
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    Greeting greeting;
  };

  /// `server` at host 0, elsewhere `client` where there is one already. Both outlive
  /// the object, which talks to them from a thread of its own.
  HostWatch(Options options, StoreServer* server, StoreClient* client);
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  /// Whether this host's ranks must end, because others have failed or are lost.
  /// `failed`: one of ours has, which the others then hear of. Never waits.
  bool must_end(bool failed);

  /// When the user wants to stop: whoever gives no answer for two seconds is lost.
  void hurry();

  /// Why host 0 cannot be asked any more, "" while it can. Waits until it has answered
  /// once more.
  std::string lost();

  /// Waits until the ranks of all hosts that can be heard have ended, or `stop` says
  /// that nobody should wait any longer; it takes a moment itself. Returns what ended
  /// the run, the same on all hosts.
  HostEnding agree(const HostEnding& mine, const std::function<bool()>& stop);

 private:
  using Clock = std::chrono::steady_clock;

  bool is_first() const {
    return options_.node == 0;
  }
  std::string host(int node, const std::string& where) const;
  std::string unreachable(int node, const std::string& name) const;
  std::string find_lost() const;
  void name_missing_hosts();
  void repeat_missing_hosts();
  std::optional<HostEnding> choose(const HostEnding& mine);
  void give_verdict(const HostEnding& verdict);
  // The answer of host 0 to another host.
  struct News {
    bool over = false;
    std::optional<HostEnding> verdict;
  };
  News exchange_news(bool failed, const HostEnding* mine);
  void follow();
  void talk();
  // agree() on host 0, and on other hosts.
  HostEnding decide(const HostEnding& mine, const std::function<bool()>& stop);
  HostEnding await_verdict(const HostEnding& mine, const std::function<bool()>& stop);
  std::unique_ptr<StoreClient> connect();

  const Options options_;
  // Used by one thread: the caller's on host 0, this object's own on other hosts.
  WaitNotice notice_;
  std::string missing_;
  bool all_have_come_ = false;
  // What host 0 knows of this host's ranks. Used by this object's thread only.
  bool reported_failure_ = false;
  bool reported_end_ = false;
  StoreServer* server_;
  StoreClient* client_;
  std::unique_ptr<StoreClient> own_client_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // What our ranks have done, for the others.
  bool failed_ = false;
  std::optional<HostEnding> mine_;
  // What the others have told.
  bool over_ = false;
  std::string lost_;
  std::optional<HostEnding> verdict_;
  int64_t rounds_ = 0;
  // Our thread says nothing more to host 0.
  bool silent_ = false;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace tandem
