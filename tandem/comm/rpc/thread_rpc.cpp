#include "tandem/comm/rpc/thread_rpc.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "tandem/base/error.h"

namespace tandem {

namespace {

// A call in progress. The mailboxes' mutex guards its members.
struct Call {
  bool answered = false;
  RpcMessage answer;
};

RpcMessage copy_of(RpcMessage message) {
  for (auto& tensor : message.tensors) {
    tensor = tensor.clone();
  }
  return message;
}

std::string late(std::chrono::milliseconds timeout) {
  return "none within " + std::to_string(timeout.count()) + " ms";
}

}  // namespace

struct ThreadMailboxes::State {
  State(int size, std::chrono::milliseconds limit)
      : timeout(limit), requests(static_cast<size_t>(size)) {}

  // Waits until `ready` returns true. Throws CommError at the timeout.
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, const std::string& what, Ready ready) {
    const bool ended =
        changed.wait_for(lock, timeout, [&] { return ready() || failed_rank >= 0; });
    if (ready()) {
      return;
    }
    if (ended) {
      throw CommError(
          what, "rank " + std::to_string(failed_rank) + " stopped", failed_rank);
    }
    throw CommError(what, late(timeout));
  }

  const std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::condition_variable changed;
  int failed_rank = -1;
  // Queue of received requests for each rank.
  std::vector<std::deque<RpcRequest>> requests;
};

namespace {

class ThreadRpc : public Rpc {
 public:
  ThreadRpc(std::shared_ptr<ThreadMailboxes::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  RpcMessage call(int peer, RpcMessage request) override {
    const auto call = std::make_shared<Call>();
    RpcRequest arriving;
    arriving.from = rank_;
    arriving.message = copy_of(std::move(request));
    // A weak pointer, because the state keeps requests that are never received.
    arriving.reply = [owner = std::weak_ptr(state_), call](RpcMessage answer) {
      const auto state = owner.lock();
      if (state == nullptr) {
        return;
      }
      answer = copy_of(std::move(answer));
      const std::lock_guard<std::mutex> lock(state->mutex);
      call->answer = std::move(answer);
      call->answered = true;
      state->changed.notify_all();
    };
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->requests[static_cast<size_t>(peer)].push_back(std::move(arriving));
    state_->changed.notify_all();
    state_->wait(lock, "the answer of rank " + std::to_string(peer), [&] {
      return call->answered;
    });
    return std::move(call->answer);
  }

  RpcRequest next() override {
    std::unique_lock<std::mutex> lock(state_->mutex);
    auto& mine = state_->requests[static_cast<size_t>(rank_)];
    state_->wait(lock, "a request of another rank", [&] { return !mine.empty(); });
    RpcRequest first = std::move(mine.front());
    mine.pop_front();
    return first;
  }

 private:
  std::shared_ptr<ThreadMailboxes::State> state_;
  int rank_;
};

}  // namespace

ThreadMailboxes::ThreadMailboxes(int size, std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>(size, timeout)) {}

ThreadMailboxes::~ThreadMailboxes() = default;

void ThreadMailboxes::fail(int rank) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->failed_rank < 0) {
    state_->failed_rank = rank;
  }
  state_->changed.notify_all();
}

std::unique_ptr<Rpc> make_thread_rpc(
    const std::shared_ptr<ThreadMailboxes>& mailboxes, int rank) {
  return std::make_unique<ThreadRpc>(mailboxes->state_, rank);
}

}  // namespace tandem
