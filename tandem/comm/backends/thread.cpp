#include "tandem/comm/backends/thread.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/comm/rpc/thread_rpc.h"

namespace tandem {

namespace {

// Shared by the ranks of a group. Everything is under one mutex, but the last
// arriver computes outside it: nobody touches the tensors before `done`.
class ThreadGroup {
 public:
  // What one rank brings to one operation.
  struct Part {
    std::string kind;
    at::Tensor input;
    at::Tensor output;
  };

  // One collective: complete once every rank has come.
  struct Meeting {
    explicit Meeting(int size) : parts(static_cast<size_t>(size)) {}

    std::vector<Part> parts;
    int arrived = 0;
    bool done = false;
    // What went wrong, as text: each rank throws an exception of its own.
    std::string error;
  };

  using Combine = std::function<void(std::vector<Part>&)>;

  ThreadGroup(int size, std::chrono::milliseconds timeout)
      : size_(size), timeout_(timeout) {}

  std::shared_ptr<Meeting> arrive(
      int rank, int64_t sequence, Part part, const Combine& combine) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto& meeting = meetings_[sequence];
    if (!meeting) {
      meeting = std::make_shared<Meeting>(size_);
    }
    const auto mine = meeting;
    mine->parts[static_cast<size_t>(rank)] = std::move(part);
    if (++mine->arrived == size_) {
      meetings_.erase(sequence);
      lock.unlock();
      finish(*mine, combine);
    }
    return mine;
  }

  std::shared_ptr<Meeting> send(int from, int to, int tag, const at::Tensor& tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& [sent, received] = mailbox(from, to, tag);
    const auto meeting = std::make_shared<Meeting>(0);
    sent.push_back({tensor, meeting});
    deliver(sent, received);
    return meeting;
  }

  std::shared_ptr<Meeting> recv(int from, int to, int tag, const at::Tensor& tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& [sent, received] = mailbox(from, to, tag);
    const auto meeting = std::make_shared<Meeting>(0);
    received.push_back({tensor, meeting});
    deliver(sent, received);
    return meeting;
  }

  bool test(const Meeting& meeting) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return meeting.done || failed_rank_ >= 0;
  }

  void wait(const Meeting& meeting, std::chrono::milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto limit = timeout.count() > 0 ? timeout : timeout_;
    const bool ended = changed_.wait_for(
        lock, limit, [&] { return meeting.done || failed_rank_ >= 0; });
    if (meeting.done && !meeting.error.empty()) {
      throw std::runtime_error(meeting.error);
    }
    if (meeting.done) {
      return;
    }
    throw std::runtime_error(
        ended ? "rank " + std::to_string(failed_rank_) + " stopped"
              : "no answer within " + std::to_string(limit.count()) + " ms; " +
                    std::to_string(meeting.arrived) + " of " + std::to_string(size_) +
                    " ranks arrived");
  }

  void fail(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failed_rank_ < 0) {
      failed_rank_ = rank;
    }
    changed_.notify_all();
    for (const auto& [key, group] : splits_) {
      group->fail(rank);
    }
    for (const auto& [number, mailboxes] : rpc_mailboxes_) {
      mailboxes->fail(rank);
    }
  }

  int failed_rank() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failed_rank_;
  }

  // The group of one color of one split; the same object for all its ranks.
  std::shared_ptr<ThreadGroup> child(int64_t sequence, int color, int size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& group = splits_[{sequence, color}];
    if (!group) {
      group = std::make_shared<ThreadGroup>(size, timeout_);
    }
    return group;
  }

  // Of the ranks' `number`th Rpc; the same object for all of them.
  std::shared_ptr<ThreadMailboxes> mailboxes(int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& mailboxes = rpc_mailboxes_[number];
    if (!mailboxes) {
      mailboxes = std::make_shared<ThreadMailboxes>(size_, timeout_);
      if (failed_rank_ >= 0) {
        mailboxes->fail(failed_rank_);
      }
    }
    return mailboxes;
  }

 private:
  struct Message {
    at::Tensor tensor;
    std::shared_ptr<Meeting> meeting;
  };
  using Mailbox = std::pair<std::deque<Message>, std::deque<Message>>;

  Mailbox& mailbox(int from, int to, int tag) {
    return mailboxes_[{from, to, tag}];
  }

  void finish(Meeting& meeting, const Combine& combine) {
    std::string error;
    try {
      check_same(meeting.parts);
      combine(meeting.parts);
    } catch (const std::exception& failure) {
      error = first_line(failure);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    meeting.error = error;
    meeting.done = true;
    changed_.notify_all();
  }

  static void check_same(const std::vector<Part>& parts) {
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].kind != parts[0].kind) {
        throw std::runtime_error(
            "rank 0 called " + parts[0].kind + ", rank " + std::to_string(i) +
            " called " + parts[i].kind);
      }
    }
  }

  void deliver(std::deque<Message>& sent, std::deque<Message>& received) {
    while (!sent.empty() && !received.empty()) {
      auto& from = sent.front();
      auto& to = received.front();
      std::string error;
      if (from.tensor.numel() == to.tensor.numel() &&
          from.tensor.scalar_type() == to.tensor.scalar_type()) {
        to.tensor.view(-1).copy_(from.tensor.view(-1));
      } else {
        error = "sizes or dtypes differ";
      }
      for (auto* meeting : {from.meeting.get(), to.meeting.get()}) {
        meeting->error = error;
        meeting->done = true;
      }
      sent.pop_front();
      received.pop_front();
      changed_.notify_all();
    }
  }

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

class ThreadWork : public Work {
 public:
  ThreadWork(
      std::shared_ptr<ThreadGroup> group, std::shared_ptr<ThreadGroup::Meeting> meeting)
      : group_(std::move(group)), meeting_(std::move(meeting)) {}

  bool test() override {
    return group_->test(*meeting_);
  }
  void wait(std::chrono::milliseconds timeout) override {
    group_->wait(*meeting_, timeout);
  }

 private:
  std::shared_ptr<ThreadGroup> group_;
  std::shared_ptr<ThreadGroup::Meeting> meeting_;
};

void reduce_into(at::Tensor& total, const at::Tensor& next, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      total.add_(next);
      break;
    case ReduceOp::min:
      at::minimum_out(total, total, next);
      break;
    case ReduceOp::max:
      at::maximum_out(total, total, next);
      break;
  }
}

at::Tensor nth_of(const at::Tensor& whole, size_t index, size_t count) {
  const auto part = whole.numel() / static_cast<int64_t>(count);
  return whole.view(-1).narrow(0, static_cast<int64_t>(index) * part, part);
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    default:
      return "sum";
  }
}

std::string kind_of(const std::string& operation, const at::Tensor& tensor) {
  return operation + " of " + std::to_string(tensor.numel()) + " " +
         c10::toString(tensor.scalar_type());
}

class ThreadCommunicator : public Communicator, public RpcBackend {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, int size)
      : Communicator(rank, size, "thread"), group_(std::move(group)) {}

  std::unique_ptr<Communicator> split(int color) override {
    const Place place = place_in_split(color);
    if (place.size == 1) {
      return make_single_communicator();
    }
    return std::make_unique<ThreadCommunicator>(
        group_->child(sequence_, color, place.size), place.rank, place.size);
  }

  std::unique_ptr<Rpc> make_rpc() override {
    return make_thread_rpc(group_->mailboxes(num_rpcs_++), rank());
  }

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    const auto kind = kind_of(std::string("all_reduce ") + name_of(op), tensor);
    return meet(kind, tensor, tensor, [op](auto& parts) {
      auto total = parts[0].input;
      for (size_t i = 1; i < parts.size(); ++i) {
        reduce_into(total, parts[i].input, op);
      }
      for (size_t i = 1; i < parts.size(); ++i) {
        parts[i].output.copy_(total);
      }
    });
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    const auto kind = kind_of("broadcast from " + std::to_string(root), tensor);
    return meet(kind, tensor, tensor, [root](auto& parts) {
      for (auto& part : parts) {
        part.output.copy_(parts[static_cast<size_t>(root)].input);
      }
    });
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    return meet(kind_of("reduce_scatter", input), input, output, [](auto& parts) {
      for (size_t slice = 0; slice < parts.size(); ++slice) {
        auto total = parts[slice].output.view(-1);
        total.copy_(nth_of(parts[0].input, slice, parts.size()));
        for (size_t i = 1; i < parts.size(); ++i) {
          total.add_(nth_of(parts[i].input, slice, parts.size()));
        }
      }
    });
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    return meet(kind_of("all_gather", input), input, output, [](auto& parts) {
      for (auto& to : parts) {
        for (size_t i = 0; i < parts.size(); ++i) {
          nth_of(to.output, i, parts.size()).copy_(parts[i].input.view(-1));
        }
      }
    });
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    const auto kind = kind_of("scatter from " + std::to_string(root), output);
    return meet(kind, input, output, [root](auto& parts) {
      const auto& whole = parts[static_cast<size_t>(root)].input;
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i].output.view(-1).copy_(nth_of(whole, i, parts.size()));
      }
    });
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    const auto kind = kind_of("gather to " + std::to_string(root), input);
    return meet(kind, input, output, [root](auto& parts) {
      const auto& whole = parts[static_cast<size_t>(root)].output;
      for (size_t i = 0; i < parts.size(); ++i) {
        nth_of(whole, i, parts.size()).copy_(parts[i].input.view(-1));
      }
    });
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    return std::make_shared<ThreadWork>(
        group_, group_->send(rank(), peer, tag, tensor));
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    return std::make_shared<ThreadWork>(
        group_, group_->recv(peer, rank(), tag, tensor));
  }

  int failed_peer() const override {
    return group_->failed_rank();
  }

 private:
  WorkPtr meet(
      const std::string& kind, const at::Tensor& input, const at::Tensor& output,
      const ThreadGroup::Combine& combine) {
    const auto meeting =
        group_->arrive(rank(), sequence_++, {kind, input, output}, combine);
    return std::make_shared<ThreadWork>(group_, meeting);
  }

  std::shared_ptr<ThreadGroup> group_;
  int64_t sequence_ = 0;
  int64_t num_rpcs_ = 0;
};

std::vector<std::unique_ptr<Communicator>> communicators_of(
    const std::shared_ptr<ThreadGroup>& group, int size) {
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(std::make_unique<ThreadCommunicator>(group, rank, size));
  }
  return all;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int size, std::chrono::milliseconds timeout) {
  return communicators_of(std::make_shared<ThreadGroup>(size, timeout), size);
}

void run_ranks(
    int size, const std::function<void(Communicator&)>& body,
    std::chrono::milliseconds timeout) {
  const auto group = std::make_shared<ThreadGroup>(size, timeout);
  auto communicators = communicators_of(group, size);
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      set_thread_rank(rank, size);
      try {
        body(*communicators[static_cast<size_t>(rank)]);
      } catch (...) {
        {
          const std::lock_guard<std::mutex> lock(mutex);
          if (!first_error) {
            first_error = std::current_exception();
          }
        }
        group->fail(rank);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  if (first_error) {
    std::rethrow_exception(first_error);
  }
}

}  // namespace tandem
