#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tandem::app {

/// Times of the requests of a StatusSender.
struct SenderTimes {
  // Minimum time between two requests, except before the request of finish().
  std::chrono::milliseconds interval{5000};
  std::chrono::milliseconds timeout{5000};
  // Timeout of the request of finish().
  std::chrono::milliseconds last_timeout{2000};
};

/// Sends statuses from its own thread, so that a slow server does not delay the caller.
///
/// Sends at most one status per interval, always the newest. A failed status is not
/// sent again, because a later status replaces it. The first failure causes a warning.
class StatusSender {
 public:
  /// Sends a status within the given time. Returns "" or the reason of a failure, which
  /// completes the sentence "URL ...". May end early if `abandoned()` returns true.
  /// Called in the sender's thread.
  using Post = std::function<std::string(
      const std::string& status, std::chrono::milliseconds timeout,
      const std::function<bool()>& abandoned)>;

  /// Starts the thread. `url` only appears in the warning.
  StatusSender(std::string url, Post post, SenderTimes times = {});
  /// Abandons the request that is in progress, and drops a status that was not sent.
  ~StatusSender();
  StatusSender(const StatusSender&) = delete;
  StatusSender& operator=(const StatusSender&) = delete;

  /// Sends a status when the interval allows it, unless a newer status replaces it
  /// before. Does not wait.
  void send(std::string status);

  /// Abandons the request that is in progress, sends the last status if there is one,
  /// and waits for the end of this request. Call it at most once; send() must not be
  /// called afterwards.
  void finish(std::optional<std::string> last_status);

 private:
  void run();
  // Sends a status without holding the mutex. Returns the reason of a failure, or "".
  std::string post(const std::string& status, bool last);

  const std::string url_;
  const Post post_;
  const SenderTimes times_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Status that has not been sent yet.
  std::optional<std::string> newest_;
  bool ending_ = false;
  // Starts after all other members are initialized.
  std::thread thread_;
};

}  // namespace tandem::app
