#pragma once

#include <chrono>
#include <memory>

#include "tandem/comm/rpc/rpc.h"

namespace tandem {

/// Mailboxes through which thread ranks call each other. Thread-safe.
class ThreadMailboxes {
 public:
  ThreadMailboxes(int size, std::chrono::milliseconds timeout);
  ~ThreadMailboxes();

  /// Reports that a rank failed. All waits then end with an error.
  void fail(int rank);

  struct State;

 private:
  friend std::unique_ptr<Rpc> make_thread_rpc(
      const std::shared_ptr<ThreadMailboxes>& mailboxes, int rank);

  std::shared_ptr<State> state_;
};

/// Returns the Rpc of rank `rank`, which sends and receives through the mailboxes.
std::unique_ptr<Rpc> make_thread_rpc(
    const std::shared_ptr<ThreadMailboxes>& mailboxes, int rank);

}  // namespace tandem
