#pragma once

#include <chrono>
#include <memory>

#include "tandem/comm/rpc/rpc.h"

namespace tandem {

/// Mailboxes that thread ranks share to call each other. Thread-safe.
class ThreadMailboxes {
 public:
  ThreadMailboxes(int size, std::chrono::milliseconds timeout);
  ~ThreadMailboxes();

  /// Ends all waits, because a rank failed.
  void fail(int rank);

  struct State;

 private:
  friend std::unique_ptr<Rpc> make_thread_rpc(
      const std::shared_ptr<ThreadMailboxes>& mailboxes, int rank);

  std::shared_ptr<State> state_;
};

/// Returns one rank's access to the mailboxes.
std::unique_ptr<Rpc> make_thread_rpc(
    const std::shared_ptr<ThreadMailboxes>& mailboxes, int rank);

}  // namespace tandem
