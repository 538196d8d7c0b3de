#include "tandem/base/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace tandem {

namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr const char* kOwnGroups = "/proc/self/cgroup";
constexpr const char* kGroupsRoot = "/sys/fs/cgroup";

// Returns the number after the word `name` in a file, nullopt if there is none.
std::optional<int64_t> number_after(const std::string& name, const std::string& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (int64_t number = 0; word == name && file >> number) {
      return number;
    }
  }
  return std::nullopt;
}

// Returns the number in a file, or kUnlimited if the file contains "max" or is missing.
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnlimited;
}

// Returns the free memory of a control group. The group's usage includes cached files,
// which the kernel reclaims first.
int64_t left_of_group(const std::string& group) {
  const int64_t most = number_in(group + "/memory.max");
  const int64_t used = number_in(group + "/memory.current");
  if (most == kUnlimited || used == kUnlimited) {
    return kUnlimited;
  }
  return most - used +
         number_after("inactive_file", group + "/memory.stat").value_or(0);
}

int64_t left_of_groups(const std::string& groups, const std::string& root) {
  std::ifstream file(groups);
  int64_t left = kUnlimited;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) != 0) {
      continue;
    }
    // A group's limit also applies to the groups in it.
    for (std::string group = line.substr(3);; group.erase(group.rfind('/'))) {
      left = std::min(left, left_of_group(root + group));
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
  const auto used_kb = number_after("VmSize:", "/proc/self/status");
  return used_kb ? static_cast<int64_t>(limit.rlim_cur) - 1024 * *used_kb : kUnlimited;
}

// Returns the number of kills in a group. In a container, the group's folder may be
// hidden. The root folder then has the counts of the group.
int64_t kills_in(const std::string& mount, const std::string& group, const char* file) {
  for (const auto& folder : {mount + group, mount}) {
    if (const auto count = number_after("oom_kill", folder + "/" + file)) {
      return *count;
    }
  }
  return 0;
}

}  // namespace

int64_t num_memory_kills(const std::string& groups, const std::string& root) {
  std::ifstream file(groups);
  int64_t kills = 0;
  // Lines are "id:controllers:/group", without controllers in version 2.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers =
        "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) {
      kills += kills_in(root + "/memory", group, "memory.oom_control");
    } else if (controllers == ",,") {
      kills += kills_in(root, group, "memory.events");
    }
  }
  return kills;
}

int64_t num_memory_kills() {
  return num_memory_kills(kOwnGroups, kGroupsRoot);
}

int64_t free_memory(const std::string& groups, const std::string& root) {
  const auto available_kb = number_after("MemAvailable:", "/proc/meminfo");
  return std::max<int64_t>(
      0, std::min(
             {available_kb ? 1024 * *available_kb : kUnlimited,
              left_of_groups(groups, root), left_of_address_space()}));
}

int64_t free_memory() {
  return free_memory(kOwnGroups, kGroupsRoot);
}

}  // namespace tandem
