#include "tandem/base/log.h"

#include <fmt/core.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <set>

#include "tandem/base/no_sigpipe.h"
#include "tandem/base/rank_env.h"

namespace tandem {

namespace {

thread_local int current_rank = 0;
thread_local int current_world_size = 1;

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>(
        "tandem", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("tandem: %v");
    made->set_level(spdlog::level::from_str(get_env("TANDEM_LOG").value_or("info")));
    return made;
  }();
  return *instance;
}

// A reader that has gone must not end a run.
void write(spdlog::level::level_enum level, const std::string& message) {
  const NoSigpipe quiet;
  logger().log(level, message);
}

std::string with_rank(const std::string& message) {
  return current_world_size > 1 ? fmt::format("[rank {}] {}", current_rank, message)
                                : message;
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
  write(spdlog::level::debug, with_rank(message));
}

void log_info(const std::string& message) {
  if (current_rank == 0) {
    write(spdlog::level::info, message);
  }
}

void log_warning(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard<std::mutex> lock(mutex);
  if (seen.insert(message).second) {
    write(spdlog::level::warn, with_rank("warning: " + message));
  }
}

void log_error(const std::string& message) {
  write(spdlog::level::err, with_rank("error: " + message));
}

}  // namespace tandem
