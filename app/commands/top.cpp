#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "app/command_line.h"
#include "tandem/base/file_lock.h"
#include "tandem/base/files.h"
#include "tandem/base/output.h"
#include "tandem/launch/status/status_client.h"
#include "tandem/launch/status/status_sockets.h"

namespace tandem::app {

namespace {

constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kBetweenTables = std::chrono::seconds(1);

// Connects to the launcher of a run directory or at HOST:PORT. Returns an empty Socket
// if no launcher listens.
Socket connect_to(const std::string& run, Socket::Deadline deadline) {
  auto socket = connect_to_run(run);
  if (socket || file_exists(run) || run.find(':') == std::string::npos) {
    return socket;
  }
  try {
    return connect_once("tcp:" + run, deadline);
  } catch (const ResolveError& error) {
    throw ConfigError("[top] " + error.reason() + "; correct HOST:PORT");
  }
}

std::optional<RunStatus> status_of(const std::string& run) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  return request_status(connect_to(run, deadline), deadline);
}

[[noreturn]] void fail_without_status(const std::string& run) {
  if (!file_exists(run)) {
    if (run.find(':') != std::string::npos) {
      throw Error(
          "[top] no launcher of tandem answers at " + run +
          "; expected the address of a run with --metrics-port");
    }
    throw ConfigError(
        "[top] '" + run +
        "' does not exist, expected the --out of a run or HOST:PORT; correct it");
  }
  const FileLock lock(run + "/run.lock");
  if (!file_exists(lock.path())) {
    throw Error("[top] no process trains in '" + run + "'; the run has ended");
  }
  throw Error(
      "[top] '" + run + "' belongs to " + lock.holder() +
      ", but its launcher does not answer; run tandem top on the host of that "
      "process, and start a run of one process with --metrics-port");
}

// Replaces the content of the terminal by a text. Cuts lines and columns that do not
// fit.
void draw(const std::string& text) {
  winsize size{};
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  const size_t width = size.ws_col == 0 ? 80 : size.ws_col;
  const int height = size.ws_row == 0 ? 24 : size.ws_row;
  std::string screen = "\033[H";
  std::istringstream lines(text);
  std::string line;
  // The cursor needs the last line.
  for (int row = 1; row < height && std::getline(lines, line); ++row) {
    screen += line.substr(0, width) + "\033[K\r\n";
  }
  print_now(stdout, screen + "\033[J");
}

// Prints a table each second, until the run ends.
void follow(const std::string& run, RunStatus status) {
  const bool draws = is_terminal(STDOUT_FILENO);
  for (;;) {
    const auto next = std::chrono::steady_clock::now() + kBetweenTables;
    const auto table = status_table(status);
    if (draws) {
      draw(table);
    } else if (const int reason = print_now(stdout, table + "\n"); reason != 0) {
      throw cannot_write_output(reason);
    }
    std::this_thread::sleep_until(next);
    auto later = status_of(run);
    if (!later) {
      fmt::print("the run has ended\n");
      return;
    }
    status = std::move(*later);
  }
}

}  // namespace

int run_top(const Arguments& arguments) {
  CLI::App app(
      "Prints each second what the ranks of a run do. The launcher of host 0 answers, "
      "so RUN must be a directory on that host. A run of one process has a launcher "
      "only with --metrics-port or --max-restarts.",
      "tandem top");
  std::string run;
  bool once = false;
  app.add_option(
         "run", run,
         "directory of a run (train --out), or HOST:PORT of its --metrics-port")
      ->required();
  app.add_flag("--once", once, "print one table");
  parse(app, arguments);
  auto status = status_of(run);
  if (!status) {
    fail_without_status(run);
  }
  if (once) {
    fmt::print("{}", status_table(*status));
  } else {
    follow(run, std::move(*status));
  }
  return 0;
}

}  // namespace tandem::app
