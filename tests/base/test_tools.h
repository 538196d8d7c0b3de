#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/scratch.h"

namespace tandem {

/// While the object exists, no file of this process grows beyond `bytes`, as on a full
/// disk.
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

/// Returns the message of the `Expected` that `act` throws. Fails if it throws none.
template <typename Expected, typename Act>
std::string message_of(Act act) {
  try {
    act();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// Waits until `condition` is true, much longer than that should take.
template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

/// Returns whether a process runs. False if it ended but was not reaped yet.
inline bool is_running(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id;
  std::string name;
  char state = 'X';
  stat >> id >> name >> state;
  return state != 'Z' && state != 'X';
}

/// Returns the number in a file that another process writes.
inline int number_in(const std::string& path) {
  int number = 0;
  eventually([&] {
    std::ifstream file(path);
    std::string line;
    // A line without an end may still grow.
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
