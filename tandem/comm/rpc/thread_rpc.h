#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/comm/rpc/rpc.h"

namespace tandem {

/// Mailboxes through which thread ranks call each other. Thread-safe.
class ThreadMailboxes : public std::enable_shared_from_this<ThreadMailboxes> {
 public:
  ThreadMailboxes(int size, std::chrono::milliseconds timeout);

  /// Functions of the Rpc of rank `rank` (rpc.h).
  RpcMessage call(int rank, int peer, RpcMessage request);
  RpcRequest next(int rank);

  /// Reports that a rank failed. All waits then end with an error.
  void fail(int rank);

 private:
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, const std::string& what, Ready ready);

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int failed_rank_ = -1;
  // Queue of received requests for each rank.
  std::vector<std::deque<RpcRequest>> requests_;
};

/// Returns the Rpc of rank `rank`, which sends and receives through the mailboxes.
std::unique_ptr<Rpc> make_thread_rpc(
    std::shared_ptr<ThreadMailboxes> mailboxes, int rank);

}  // namespace tandem
