#include "tandem/comm/rpc/thread_rpc.h"

#include <optional>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

namespace {

RpcMessage copy_of(RpcMessage message) {
  for (auto& tensor : message.tensors) {
    tensor = tensor.clone();
  }
  return message;
}

class ThreadRpc : public Rpc {
 public:
  ThreadRpc(std::shared_ptr<ThreadMailboxes> mailboxes, int rank)
      : mailboxes_(std::move(mailboxes)), rank_(rank) {}

  RpcMessage call(int peer, RpcMessage request) override {
    return mailboxes_->call(rank_, peer, std::move(request));
  }

  RpcRequest next() override {
    return mailboxes_->next(rank_);
  }

 private:
  std::shared_ptr<ThreadMailboxes> mailboxes_;
  int rank_;
};

}  // namespace

ThreadMailboxes::ThreadMailboxes(int size, std::chrono::milliseconds timeout)
    : timeout_(timeout), requests_(static_cast<size_t>(size)) {}

RpcMessage ThreadMailboxes::call(int rank, int peer, RpcMessage request) {
  // The mutex guards the answer.
  const auto answer = std::make_shared<std::optional<RpcMessage>>();
  RpcRequest arriving;
  arriving.from = rank;
  arriving.message = copy_of(std::move(request));
  // A weak pointer, because this object keeps requests that are never received.
  arriving.reply = [weak = weak_from_this(), answer](RpcMessage message) {
    const auto self = weak.lock();
    if (self == nullptr) {
      return;
    }
    message = copy_of(std::move(message));
    const std::lock_guard<std::mutex> lock(self->mutex_);
    *answer = std::move(message);
    self->changed_.notify_all();
  };
  std::unique_lock<std::mutex> lock(mutex_);
  requests_[static_cast<size_t>(peer)].push_back(std::move(arriving));
  changed_.notify_all();
  wait(lock, "the answer of rank " + std::to_string(peer), [&] {
    return answer->has_value();
  });
  return std::move(**answer);
}

RpcRequest ThreadMailboxes::next(int rank) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto& mine = requests_[static_cast<size_t>(rank)];
  wait(lock, "a request of another rank", [&] { return !mine.empty(); });
  RpcRequest first = std::move(mine.front());
  mine.pop_front();
  return first;
}

void ThreadMailboxes::fail(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failed_rank_ < 0) {
    failed_rank_ = rank;
  }
  changed_.notify_all();
}

// Waits until `ready` returns true. Throws CommError at the timeout, or if a rank
// failed.
template <typename Ready>
void ThreadMailboxes::wait(
    std::unique_lock<std::mutex>& lock, const std::string& what, Ready ready) {
  const bool ended =
      changed_.wait_for(lock, timeout_, [&] { return ready() || failed_rank_ >= 0; });
  if (ready()) {
    return;
  }
  if (ended) {
    throw CommError(
        what, "rank " + std::to_string(failed_rank_) + " stopped", failed_rank_);
  }
  throw CommError(what, "none within " + std::to_string(timeout_.count()) + " ms");
}

std::unique_ptr<Rpc> make_thread_rpc(
    std::shared_ptr<ThreadMailboxes> mailboxes, int rank) {
  return std::make_unique<ThreadRpc>(std::move(mailboxes), rank);
}

}  // namespace tandem
