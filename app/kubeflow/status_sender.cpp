#include "app/kubeflow/status_sender.h"

#include <exception>
#include <utility>

#include "tandem/base/log.h"

namespace tandem::app {

namespace {

void warn_of_failure(const std::string& url, const std::string& reason) {
  log_warning(
      "[kubeflow] the TrainJob does not show the progress of this run: " + url + " " +
      reason +
      "; check KUBEFLOW_TRAINER_SERVER_URL, KUBEFLOW_TRAINER_SERVER_TOKEN and "
      "KUBEFLOW_TRAINER_SERVER_CA_CERT");
}

}  // namespace

StatusSender::StatusSender(std::string url, Post post, SenderTimes times)
    : url_(std::move(url)),
      post_(std::move(post)),
      times_(times),
      thread_([this] { run(); }) {}

StatusSender::~StatusSender() {
  if (thread_.joinable()) {
    finish(std::nullopt);
  }
}

void StatusSender::send(std::string status) {
  {
    const std::lock_guard lock(mutex_);
    newest_ = std::move(status);
  }
  changed_.notify_one();
}

void StatusSender::finish(std::optional<std::string> last_status) {
  {
    const std::lock_guard lock(mutex_);
    newest_ = std::move(last_status);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void StatusSender::run() {
  bool warned = false;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return newest_ || ending_; });
    if (!newest_) {
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string status = *std::exchange(newest_, std::nullopt);
    const bool last = ending_;
    lock.unlock();
    const std::string reason = post(status, last);
    lock.lock();
    const bool abandoned = ending_ && !last;
    if (!reason.empty() && !abandoned && !std::exchange(warned, true)) {
      warn_of_failure(url_, reason);
    }
    if (last) {
      return;
    }
    changed_.wait_until(lock, start + times_.interval, [this] { return ending_; });
  }
}

std::string StatusSender::post(const std::string& status, bool last) {
  const auto abandoned = [this, last] {
    const std::lock_guard lock(mutex_);
    return ending_ && !last;
  };
  try {
    return post_(status, last ? times_.last_timeout : times_.timeout, abandoned);
  } catch (const std::exception& error) {
    return std::string("failed (") + error.what() + ")";
  }
}

}  // namespace tandem::app
