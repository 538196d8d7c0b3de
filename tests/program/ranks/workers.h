#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tests/base/test_tools.h"

namespace tandem {

/// Returns whether a worker process is a fork server (launch/fork_server.h). Also
/// returns true for a new rank that still has the name of the fork server.
inline bool is_fork_server(const std::string& pid) {
  const auto text_of = [&](const char* file) {
    std::ifstream stream("/proc/" + pid + "/" + file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  return text_of("comm") == "tandem-worker\n" &&
         text_of("environ").find("TANDEM_FORK_SERVER=") != std::string::npos;
}

/// Returns the process ids of workers whose command line contains both marks, without
/// fork servers.
inline std::vector<pid_t> workers_of(
    const std::string& mark, const std::string& other_mark = "") {
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
        text.str().find(mark) != std::string::npos &&
        text.str().find(other_mark) != std::string::npos && !is_fork_server(name)) {
      found.push_back(pid);
    }
  }
  return found;
}

/// Returns whether the run in the directory `out` has written metrics, which means that
/// training has started.
inline bool has_reported(const std::string& out) {
  const auto metrics = out + "/metrics.jsonl";
  return file_exists(metrics) && !read_file(metrics).empty();
}

/// Waits until has_reported(out) is true, for at most a minute.
inline void wait_until_it_reports(const std::string& out) {
  eventually([&] { return has_reported(out); }, 60);
}

/// Returns the process id of the parent of `pid`; 0 if the process does not exist.
inline pid_t parent_of_process(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  if (text.empty()) {
    return 0;
  }
  // The format is "pid (name) state parent". Since the name may contain any character,
  // the parser begins after the last ")".
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

}  // namespace tandem
