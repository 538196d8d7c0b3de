#include "app/kubeflow/status_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <stdexcept>
#include <vector>

namespace tandem::app::status_sender_test {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Calls `use` and returns the lines that it writes to standard error.
template <typename Use>
std::string errors_of(const Use& use) {
  testing::internal::CaptureStderr();
  use();
  return testing::internal::GetCapturedStderr();
}

// A server that blocks each request until the test answers the request.
class Server {
 public:
  StatusSender::Post post() {
    return [this](const std::string& status, milliseconds, const auto& abandoned) {
      std::unique_lock lock(mutex_);
      received_.push_back(status);
      changed_.notify_all();
      while (!answers_ && !abandoned()) {
        changed_.wait_for(lock, milliseconds(1));
      }
      return answers_ ? "" : "was abandoned";
    };
  }
  void wait_for_request(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return received_.size() >= count; });
  }
  void answer_all() {
    const std::lock_guard lock(mutex_);
    answers_ = true;
    changed_.notify_all();
  }
  std::vector<std::string> received() {
    const std::lock_guard lock(mutex_);
    return received_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> received_;
  bool answers_ = false;
};

TEST(StatusSender, SendsTheNewestStatusAndTheLast) {
  Server server;
  StatusSender sender("url", server.post(), {milliseconds(0)});
  sender.send("1");
  server.wait_for_request(1);
  sender.send("2");
  sender.send("3");
  server.answer_all();
  server.wait_for_request(2);
  sender.finish("4");
  EXPECT_THAT(server.received(), ElementsAre("1", "3", "4"));
}

TEST(StatusSender, WaitsForTheIntervalExceptBeforeTheLastStatus) {
  Server server;
  server.answer_all();
  StatusSender sender("url", server.post(), {hours(1)});
  sender.send("1");
  server.wait_for_request(1);
  sender.send("2");
  sender.finish("3");
  EXPECT_THAT(server.received(), ElementsAre("1", "3"));
}

TEST(StatusSender, EndsWhileTheServerHangs) {
  const auto errors = errors_of([] {
    Server server;
    StatusSender sender("url", server.post());
    sender.send("1");
    server.wait_for_request(1);
  });
  EXPECT_EQ(errors, "");
}

TEST(StatusSender, AbandonsARequestToSendTheLastStatus) {
  std::vector<std::string> received;
  std::promise<void> started;
  const auto errors = errors_of([&] {
    StatusSender sender(
        "url", [&](const std::string& status, milliseconds, const auto& abandoned) {
          received.push_back(status);
          if (received.size() == 1) {
            started.set_value();
            while (!abandoned()) {
              std::this_thread::sleep_for(milliseconds(1));
            }
            return "was abandoned";
          }
          return abandoned() ? "was abandoned" : "";
        });
    sender.send("1");
    started.get_future().wait();
    sender.finish("2");
  });
  EXPECT_THAT(received, ElementsAre("1", "2"));
  EXPECT_EQ(errors, "");
}

TEST(StatusSender, WarnsOnceOfAllFailures) {
  const auto errors = errors_of([] {
    std::atomic<int> calls{0};
    StatusSender sender(
        "https://there",
        [&](const std::string&, milliseconds, const auto&) -> std::string {
          const int call = ++calls;
          if (call == 2) {
            throw std::runtime_error("no file");
          }
          return "answered " + std::to_string(500 + call);
        },
        {milliseconds(0)});
    while (calls < 3) {
      sender.send("a");
      std::this_thread::sleep_for(milliseconds(1));
    }
    sender.finish("b");
  });
  EXPECT_THAT(errors, HasSubstr("https://there answered 501; check"));
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
}

TEST(StatusSender, WarnsOfAnException) {
  const auto errors = errors_of([] {
    StatusSender sender(
        "url", [](const std::string&, milliseconds, const auto&) -> std::string {
          throw std::runtime_error("no file");
        });
    sender.finish("a");
  });
  EXPECT_THAT(errors, HasSubstr("url failed (no file); check"));
}

}  // namespace tandem::app::status_sender_test
