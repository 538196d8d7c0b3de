#include "tandem/base/program_clock.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr const char* kStartVariable = "TANDEM_PROGRAM_START";
// Index of the start time in /proc/PID/stat. The field after the process name, its
// state, has index 0.
constexpr size_t kStartTime = 19;

double seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the start time of this process, in seconds since boot, rounded to 0.01 s.
// exec() does not change it.
double start_of_process() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The process name is in brackets and may contain any characters.
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  const std::vector<std::string> words{
      std::istream_iterator<std::string>(rest), std::istream_iterator<std::string>()};
  const auto ticks = words.size() > kStartTime ? parse_number<double>(words[kStartTime])
                                               : std::nullopt;
  return ticks ? *ticks / static_cast<double>(sysconf(_SC_CLK_TCK))
               : seconds_since_boot();
}

}  // namespace

double program_seconds() {
  const auto start = parse_number<double>(get_env(kStartVariable).value_or(""));
  return std::max(0.0, seconds_since_boot() - start.value_or(start_of_process()));
}

std::string program_start() {
  const auto start = get_env(kStartVariable).value_or("");
  return start.empty() ? std::to_string(start_of_process()) : start;
}

std::pair<std::string, std::string> program_start_variable() {
  return {kStartVariable, std::to_string(start_of_process())};
}

}  // namespace tandem
