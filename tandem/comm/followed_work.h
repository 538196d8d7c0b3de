#pragma once

#include <functional>
#include <utility>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Work whose wait() also calls a function that processes the operation's result.
class FollowedWork : public Work {
 public:
  /// The first wait() calls `then` in its thread, after `work` has succeeded.
  FollowedWork(WorkPtr work, std::function<void()> then)
      : work_(std::move(work)), then_(std::move(then)) {}

  bool test() override {
    return work_->test();
  }

  void wait(std::chrono::milliseconds timeout) override {
    work_->wait(timeout);
    if (then_) {
      then_();
      then_ = nullptr;
    }
  }

  void on_end(std::function<void()> then) override {
    work_->on_end(std::move(then));
  }

 private:
  WorkPtr work_;
  std::function<void()> then_;
};

}  // namespace tandem
