#pragma once

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/files.h"

namespace tandem {

/// Returns whether a worker is a fork server (launch/fork_server.h), which ends before
/// ranks start, or a rank that has no name yet.
inline bool is_fork_server(const std::string& pid) {
  const auto text_of = [&](const char* file) {
    std::ifstream stream("/proc/" + pid + "/" + file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  return text_of("comm") == "tandem-worker\n" &&
         text_of("environ").find("TANDEM_FORK_SERVER=") != std::string::npos;
}

/// Returns process ids of workers whose command line contains `mark`.
inline std::vector<pid_t> workers_of(const std::string& mark) {
  std::vector<pid_t> found;
  for (const auto& name : list_directory("/proc")) {
    const pid_t pid = std::atoi(name.c_str());
    if (pid <= 0) {
      continue;
    }
    std::ifstream file("/proc/" + name + "/cmdline");
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find("tandem-worker") != std::string::npos &&
        text.str().find(mark) != std::string::npos && !is_fork_server(name)) {
      found.push_back(pid);
    }
  }
  return found;
}

/// Returns whether the run in `out` has metrics, so training has started.
inline bool has_reported(const std::string& out) {
  const auto metrics = out + "/metrics.jsonl";
  return file_exists(metrics) && !read_file(metrics).empty();
}

/// Waits for that, for a minute at most.
inline void wait_until_it_reports(const std::string& out) {
  for (int i = 0; i < 600 && !has_reported(out); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

/// Returns the parent of `pid`.
inline pid_t parent_of_process(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  if (text.empty()) {
    return 0;
  }
  // "pid (name) state parent": the name may contain any character.
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

}  // namespace tandem
