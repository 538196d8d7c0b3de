#include "tandem/base/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace tandem {

namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Of "name: number kB" in a file of /proc.
int64_t kilobytes_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (int64_t number = 0; word == name && file >> number) {
      return number * 1024;
    }
  }
  return kUnlimited;
}

// "max" for no limit is no number.
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnlimited;
}

// Memory of cached files counts as used, but is given up first.
int64_t left_of_group(const std::string& group) {
  const int64_t most = number_in(group + "/memory.max");
  const int64_t used = number_in(group + "/memory.current");
  if (most == kUnlimited || used == kUnlimited) {
    return kUnlimited;
  }
  std::ifstream file(group + "/memory.stat");
  int64_t cached = 0;
  for (std::string name; file >> name && name != "inactive_file";) {
  }
  file >> cached;
  return most - used + cached;
}

int64_t left_of_groups() {
  std::ifstream file("/proc/self/cgroup");
  int64_t left = kUnlimited;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) != 0) {
      continue;
    }
    // A limit holds for all groups below.
    for (std::string group = line.substr(3);; group.erase(group.rfind('/'))) {
      left = std::min(left, left_of_group("/sys/fs/cgroup" + group));
      if (group.empty() || group == "/") {
        break;
      }
    }
  }
  return left;
}

int64_t left_of_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kUnlimited;
  }
  const int64_t used = kilobytes_in("/proc/self/status", "VmSize:");
  return used == kUnlimited ? kUnlimited : static_cast<int64_t>(limit.rlim_cur) - used;
}

}  // namespace

int64_t free_memory() {
  return std::max<int64_t>(
      0, std::min(
             {kilobytes_in("/proc/meminfo", "MemAvailable:"), left_of_groups(),
              left_of_address_space()}));
}

}  // namespace tandem
