#include "tandem/base/log.h"

#include <fmt/core.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/output.h"
#include "tandem/base/rank_env.h"

namespace tandem {

namespace {

thread_local int current_rank = 0;
thread_local int current_world_size = 1;

// Sink for standard error. If the reader closes the stream, the run must not end. If
// the reader stalls, the run must still be able to save.
class ErrorOutput : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // A progress bar may have left the cursor at the end of its line.
    const char* start = is_terminal(STDERR_FILENO) ? "\r\033[K" : "";
    print_now(stderr, start + std::string(line.data(), line.size()));
  }
  void flush_() override {}
};

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("tandem", std::make_shared<ErrorOutput>());
    made->set_pattern("tandem: %v");
    made->set_level(spdlog::level::from_str(get_env("TANDEM_LOG").value_or("info")));
    return made;
  }();
  return *instance;
}

std::string with_rank(const std::string& message) {
  return current_world_size > 1 ? fmt::format("[rank {}] {}", current_rank, message)
                                : message;
}

std::string label(Emphasis emphasis, const std::string& text) {
  return emphasised(STDERR_FILENO, emphasis, text) + " ";
}

}  // namespace

void set_thread_rank(int rank, int world_size) {
  current_rank = rank;
  current_world_size = world_size;
}

int thread_rank() {
  return current_rank;
}

void log_debug(const std::string& message) {
  logger().log(spdlog::level::debug, with_rank(printable(message)));
}

void log_info(const std::string& message) {
  if (current_rank == 0) {
    logger().log(spdlog::level::info, printable(message));
  }
}

void log_warning(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard<std::mutex> lock(mutex);
  if (seen.insert(message).second) {
    logger().log(
        spdlog::level::warn,
        with_rank(label(Emphasis::warning, "warning:") + printable(message)));
  }
}

void log_error(const std::string& message) {
  logger().log(
      spdlog::level::err,
      with_rank(label(Emphasis::error, "error:") + printable(message)));
}

}  // namespace tandem
