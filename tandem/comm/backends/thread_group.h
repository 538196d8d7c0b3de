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

#include "tandem/comm/communicator.h"
#include "tandem/comm/rpc/thread_rpc.h"

namespace tandem {

/// State that the thread ranks of a group share. Thread-safe.
///
/// One mutex protects all members. The last rank to arrive computes without holding the
/// mutex, because no other rank touches the tensors before the operation has ended.
class ThreadGroup {
 public:
  /// One rank's arguments of an operation.
  struct Part {
    std::string kind;
    at::Tensor input;
    at::Tensor output;
  };

  using Combine = std::function<void(std::vector<Part>&)>;

  ThreadGroup(int size, std::chrono::milliseconds timeout);

  /// Adds a rank's part to the collective with number `sequence`. The last rank to
  /// arrive calls `combine` with the parts of all ranks, in rank order. If `combine`
  /// throws, or the kinds of the parts differ, wait() throws on all ranks.
  [[nodiscard]] WorkPtr arrive(
      int rank, int64_t sequence, Part part, const Combine& combine);

  /// Sends or receives a message. Messages with equal (from, to, tag) arrive in the
  /// order of their sends.
  [[nodiscard]] WorkPtr send(int from, int to, int tag, const at::Tensor& tensor);
  [[nodiscard]] WorkPtr recv(int from, int to, int tag, const at::Tensor& tensor);

  /// Reports that a rank failed. All waits in this group, and in groups that were split
  /// from it, then end with an error.
  void fail(int rank);

  /// Returns the first rank that failed; -1 if no rank failed.
  int failed_rank();

  /// Returns the new group for one color of a split. `sequence` identifies the split,
  /// so that all ranks of the new group get the same object.
  std::shared_ptr<ThreadGroup> child(int64_t sequence, int color, int size);

  /// Returns the mailboxes of the Rpc with this number. All ranks get the same object.
  std::shared_ptr<ThreadMailboxes> mailboxes(int64_t number);

 private:
  // One collective operation, one send or one receive. All ranks of a collective share
  // the object. A collective ends after all ranks have called it. A send and its
  // receive end together, after both were called. `done` is then true. Only collectives
  // set `parts` and `arrived`.
  struct Meeting : Work {
    Meeting(ThreadGroup& of, int size) : group(of), parts(static_cast<size_t>(size)) {}

    bool test() override;
    void wait(std::chrono::milliseconds timeout) override;
    void on_end(std::function<void()> then) override;

    ThreadGroup& group;
    std::vector<Part> parts;
    int arrived = 0;
    bool done = false;
    // Functions to call at the end, in the thread of any rank.
    std::vector<std::function<void()>> then;
    // Text of the error, "" if there is none. Each rank throws its own exception with
    // this text.
    std::string error;
  };

  struct Message {
    at::Tensor tensor;
    std::shared_ptr<Meeting> meeting;
  };
  using Mailbox = std::pair<std::deque<Message>, std::deque<Message>>;

  // finish() locks the mutex. conclude(), mailbox() and deliver() are called with the
  // mutex locked.
  void finish(Meeting& meeting, const Combine& combine);
  void conclude(Meeting& meeting, const std::string& error);
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
