#pragma once

#include <chrono>
#include <memory>

#include "tandem/comm/rpc/rpc.h"

namespace tandem {

/// The mailboxes of thread ranks that call each other; shared by them. Thread-safe.
class ThreadMailboxes {
 public:
  ThreadMailboxes(int size, std::chrono::milliseconds timeout);
  ~ThreadMailboxes();

  /// Ends all waits: the rank is gone.
  void fail(int rank);

  struct State;

 private:
  friend std::unique_ptr<Rpc> make_thread_rpc(
      const std::shared_ptr<ThreadMailboxes>& mailboxes, int rank);

  std::shared_ptr<State> state_;
};

/// One rank's access to them.
std::unique_ptr<Rpc> make_thread_rpc(
    const std::shared_ptr<ThreadMailboxes>& mailboxes, int rank);

}  // namespace tandem
