#include "tandem/base/process_limits.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "tandem/base/text.h"

namespace tandem {

namespace {

std::optional<int64_t> number_in_file(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  return parse_number<int64_t>(text);
}

// Returns the group with the smallest pids.max that leaves no room; "" for none. The
// limits of the parents of `group` also apply.
std::string full_group(const std::string& root, std::string group) {
  std::string found;
  int64_t least = 0;
  for (;; group.erase(group.rfind('/'))) {
    const auto most = number_in_file(root + group + "/pids.max");
    const auto now = number_in_file(root + group + "/pids.current");
    // Other processes may have ended meanwhile.
    constexpr int64_t kRoom = 2;
    if (most && now && *now + kRoom >= *most && (found.empty() || *most < least)) {
      found = fmt::format(
          "pids.max of the control group '{}' is {}", group.empty() ? "/" : group,
          *most);
      least = *most;
    }
    if (group.empty() || group == "/") {
      return found;
    }
  }
}

std::string limit_of_user() {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_NPROC, &limit) == 0;
  return known && limit.rlim_cur != RLIM_INFINITY
             ? fmt::format("ulimit -u is {}", limit.rlim_cur)
             : "the limit of processes and threads (ulimit -u, pids.max) is reached";
}

}  // namespace

std::string explain_process_limit(const std::string& groups, const std::string& root) {
  std::string reached;
  std::istringstream lines(groups);
  // A line is "ID:CONTROLLERS:PATH"; version 2 has no controllers.
  for (std::string line; std::getline(lines, line) && reached.empty();) {
    const size_t at = line.find('/');
    const bool second = line.rfind("0::", 0) == 0;
    if (at != std::string::npos &&
        (second || line.find(":pids:") != std::string::npos)) {
      reached = full_group(second ? root : root + "/pids", line.substr(at));
    }
  }
  return "[launch] " + (reached.empty() ? limit_of_user() : reached) +
         ", expected room for another process or thread; raise it, or lower --nproc or "
         "--threads";
}

std::string explain_process_limit() {
  std::ifstream file("/proc/self/cgroup");
  return explain_process_limit(
      std::string(std::istreambuf_iterator<char>(file), {}), "/sys/fs/cgroup");
}

}  // namespace tandem
