#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/comm/rpc/thread_rpc.h"

namespace tandem {

/// Where thread ranks meet: shared by the ranks of a group. Thread-safe.
///
/// Everything is under one mutex, but the last arriver computes outside it: nobody
/// touches the tensors before `done`.
class ThreadGroup {
 public:
  /// What one rank brings to one operation.
  struct Part {
    std::string kind;
    at::Tensor input;
    at::Tensor output;
  };

  /// One collective: complete once every rank has come.
  struct Meeting {
    explicit Meeting(int size) : parts(static_cast<size_t>(size)) {}

    std::vector<Part> parts;
    int arrived = 0;
    bool done = false;
    // What went wrong, as text: each rank throws an exception of its own.
    std::string error;
  };

  using Combine = std::function<void(std::vector<Part>&)>;

  ThreadGroup(int size, std::chrono::milliseconds timeout);

  /// Brings a rank's part to the group's `sequence`th collective. The last to come
  /// calls `combine` with the parts of all, in rank order; an error of that, and parts
  /// of different kinds, are what wait() throws on all ranks.
  std::shared_ptr<Meeting> arrive(
      int rank, int64_t sequence, Part part, const Combine& combine);

  /// Messages of one (from, to, tag) arrive in the order they were sent.
  std::shared_ptr<Meeting> send(int from, int to, int tag, const at::Tensor& tensor);
  std::shared_ptr<Meeting> recv(int from, int to, int tag, const at::Tensor& tensor);

  /// Whether wait() would return, or throw, at once.
  bool test(const Meeting& meeting);

  /// Throws when the meeting went wrong, a rank failed, or nobody came in time; 0
  /// milliseconds: the group's own timeout.
  void wait(const Meeting& meeting, std::chrono::milliseconds timeout);

  /// Ends all waits, of groups that were split from this one too: the rank is gone.
  void fail(int rank);

  /// The first rank that failed; -1 while none has.
  int failed_rank();

  /// The group of one color of one split; the same object for all its ranks.
  std::shared_ptr<ThreadGroup> child(int64_t sequence, int color, int size);

  /// Of the ranks' `number`th Rpc; the same object for all of them.
  std::shared_ptr<ThreadMailboxes> mailboxes(int64_t number);

 private:
  struct Message {
    at::Tensor tensor;
    std::shared_ptr<Meeting> meeting;
  };
  using Mailbox = std::pair<std::deque<Message>, std::deque<Message>>;

  // finish() takes the mutex; the others are called with it.
  void finish(Meeting& meeting, const Combine& combine);
  Mailbox& mailbox(int from, int to, int tag);
  void deliver(std::deque<Message>& sent, std::deque<Message>& received);

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int failed_rank_ = -1;
  std::map<int64_t, std::shared_ptr<Meeting>> meetings_;
  std::map<std::tuple<int, int, int>, Mailbox> mailboxes_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<ThreadGroup>> splits_;
  std::map<int64_t, std::shared_ptr<ThreadMailboxes>> rpc_mailboxes_;
};

}  // namespace tandem
