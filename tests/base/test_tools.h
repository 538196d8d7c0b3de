#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem {

/// While the object exists, this process cannot write beyond the first `bytes` bytes of
/// a file, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

/// Waits until `condition` is true, and returns true. Returns false if the condition is
/// still false after `seconds` or more.
template <typename Condition>
bool eventually(Condition condition, int seconds = 10) {
  for (int i = 0; i < 200 * seconds; ++i) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

/// Runs `body` in a forked child process. Returns the exit code that `body` returns, or
/// 1000 + N if signal N killed the child.
template <typename Body>
int code_of_child(const Body& body) {
  // The child would also write the rest of a stream's buffer.
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Returns whether a process runs. A process that has ended but has not been reaped
/// does not run.
inline bool is_running(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id;
  std::string name;
  char state = 'X';
  stat >> id >> name >> state;
  return state != 'Z' && state != 'X';
}

/// Waits until another process has written a number to a file, and returns the number.
inline int number_in(const std::string& path) {
  int number = 0;
  eventually([&] {
    std::ifstream file(path);
    std::string line;
    // A line without a line end may be incomplete.
    if (std::getline(file, line) && !file.eof()) {
      number = std::stoi(line);
    }
    return number != 0;
  });
  EXPECT_NE(number, 0) << path;
  return number;
}

/// Returns the mask of blocked signals of each thread of this process.
inline std::vector<uint64_t> blocked_signals() {
  std::vector<uint64_t> masks;
  for (const auto& thread : list_directory("/proc/self/task")) {
    std::ifstream status("/proc/self/task/" + thread + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) == 0) {
        masks.push_back(std::stoull(line.substr(7), nullptr, 16));
      }
    }
  }
  return masks;
}

}  // namespace tandem
