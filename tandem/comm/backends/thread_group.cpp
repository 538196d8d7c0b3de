#include "tandem/comm/backends/thread_group.h"

#include <exception>
#include <stdexcept>

#include "tandem/base/error.h"

namespace tandem {

namespace {

void check_same(const std::vector<ThreadGroup::Part>& parts) {
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].kind != parts[0].kind) {
      throw std::runtime_error(
          "rank 0 called " + parts[0].kind + ", rank " + std::to_string(i) +
          " called " + parts[i].kind);
    }
  }
}

}  // namespace

ThreadGroup::ThreadGroup(int size, std::chrono::milliseconds timeout)
    : size_(size), timeout_(timeout) {}

WorkPtr ThreadGroup::arrive(
    int rank, int64_t sequence, Part part, const Combine& combine) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto& meeting = meetings_[sequence];
  if (!meeting) {
    meeting = std::make_shared<Meeting>(*this, size_);
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

WorkPtr ThreadGroup::send(int from, int to, int tag, const at::Tensor& tensor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& [sent, received] = mailbox(from, to, tag);
  const auto meeting = std::make_shared<Meeting>(*this, 0);
  sent.push_back({tensor, meeting});
  deliver(sent, received);
  return meeting;
}

WorkPtr ThreadGroup::recv(int from, int to, int tag, const at::Tensor& tensor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& [sent, received] = mailbox(from, to, tag);
  const auto meeting = std::make_shared<Meeting>(*this, 0);
  received.push_back({tensor, meeting});
  deliver(sent, received);
  return meeting;
}

bool ThreadGroup::Meeting::test() {
  const std::lock_guard<std::mutex> lock(group.mutex_);
  return done || group.failed_rank_ >= 0;
}

void ThreadGroup::Meeting::on_end(std::function<void()> call) {
  const std::lock_guard<std::mutex> lock(group.mutex_);
  if (done) {
    call();
  } else {
    then.push_back(std::move(call));
  }
}

void ThreadGroup::Meeting::wait(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(group.mutex_);
  const auto limit = timeout.count() > 0 ? timeout : group.timeout_;
  const bool ended = group.changed_.wait_for(
      lock, limit, [&] { return done || group.failed_rank_ >= 0; });
  if (done && !error.empty()) {
    throw std::runtime_error(error);
  }
  if (done) {
    return;
  }
  throw std::runtime_error(
      ended ? "rank " + std::to_string(group.failed_rank_) + " stopped"
            : "no answer within " + std::to_string(limit.count()) + " ms; " +
                  std::to_string(arrived) + " of " + std::to_string(group.size_) +
                  " ranks arrived");
}

void ThreadGroup::fail(int rank) {
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

int ThreadGroup::failed_rank() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_rank_;
}

std::shared_ptr<ThreadGroup> ThreadGroup::child(int64_t sequence, int color, int size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& group = splits_[{sequence, color}];
  if (!group) {
    group = std::make_shared<ThreadGroup>(size, timeout_);
  }
  return group;
}

std::shared_ptr<ThreadMailboxes> ThreadGroup::mailboxes(int64_t number) {
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

ThreadGroup::Mailbox& ThreadGroup::mailbox(int from, int to, int tag) {
  return mailboxes_[{from, to, tag}];
}

void ThreadGroup::finish(Meeting& meeting, const Combine& combine) {
  std::string error;
  try {
    check_same(meeting.parts);
    combine(meeting.parts);
  } catch (const std::exception& failure) {
    error = first_line(failure);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  conclude(meeting, error);
}

void ThreadGroup::conclude(Meeting& meeting, const std::string& error) {
  meeting.error = error;
  meeting.done = true;
  for (const auto& then : meeting.then) {
    then();
  }
  changed_.notify_all();
}

void ThreadGroup::deliver(std::deque<Message>& sent, std::deque<Message>& received) {
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
      conclude(*meeting, error);
    }
    sent.pop_front();
    received.pop_front();
  }
}

}  // namespace tandem
