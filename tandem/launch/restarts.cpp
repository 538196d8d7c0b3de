#include "tandem/launch/restarts.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <regex>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr const char* kCount = "TANDEM_RESTART_COUNT";
constexpr const char* kAttemptNumber = "TANDEM_ATTEMPT";
constexpr const char* kTorchCount = "TORCHELASTIC_RESTART_COUNT";
constexpr const char* kCauses = "TANDEM_RESTART_CAUSES";
constexpr int kMostRepeats = 3;
// Maximum number and length of causes that are passed to the ranks. All variables of a
// rank must have less than 64 KiB (fork_server.cpp).
constexpr size_t kMostCauseBytes = 1000;
constexpr size_t kMostCauses = 20;

int number_in_env(const char* name) {
  return std::max(0, parse_number<int>(get_env(name).value_or("")).value_or(0));
}

std::string without_process_ids(const std::string& reason) {
  static const std::regex pid("pid [0-9]+");
  return std::regex_replace(reason, pid, "pid");
}

}  // namespace

int restart_count() {
  return std::max(number_in_env(kCount), number_in_env(kTorchCount));
}

bool is_started_again() {
  return restart_count() > 0 || number_in_env(kAttemptNumber) > 0;
}

std::pair<std::string, std::string> attempt_variable(int number) {
  return {kAttemptNumber, std::to_string(number)};
}

std::vector<std::string> restart_causes() {
  const auto text = get_env(kCauses).value_or("");
  return text.empty() ? std::vector<std::string>() : split(text, '\n');
}

void Restarts::decide(HostEnding& ending, int64_t step) {
  if (most_ == 0 || ending.code == 0 || ending.code == kExitMisuse ||
      ending.code == kExitStopped) {
    return;
  }
  const std::string reason = without_process_ids(ending.reason);
  repeats_ = step >= 0 && step == step_ && reason == reason_ ? repeats_ + 1 : 1;
  idle_failures_ = step >= 0 && repeats_ == 1 ? 0 : idle_failures_ + 1;
  reason_ = reason;
  step_ = step;
  if (count() >= most_) {
    ending.reason += fmt::format("; no restart is left of {} (--max-restarts)", most_);
  } else if (repeats_ >= kMostRepeats) {
    ending.reason += fmt::format(
        "; not started again, because the run failed {} times after step {} for this "
        "reason",
        repeats_, step);
  } else {
    causes_.push_back(ending.reason.substr(0, kMostCauseBytes));
    ending.again = true;
    ending.reason += fmt::format("; restart {} of {}", count(), most_);
    if (delay().count() > 0) {
      ending.reason += fmt::format(" in {} s", delay().count());
    }
  }
}

std::chrono::seconds Restarts::delay() const {
  constexpr int kMostDoublings = 6;
  if (idle_failures_ == 0) {
    return {};
  }
  return std::min(
      kLongestDelay,
      std::chrono::seconds(1 << std::min(idle_failures_ - 1, kMostDoublings)));
}

Variables Restarts::variables() const {
  const std::string count_text = std::to_string(count());
  const auto shown = causes_.end() -
                     static_cast<std::ptrdiff_t>(std::min(kMostCauses, causes_.size()));
  return {
      {kCount, count_text},
      {kTorchCount, count_text},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(most_)},
      {kCauses, join({shown, causes_.end()}, "\n")}};
}

std::vector<int> HostChanges::note(const Change& attempt) {
  const auto before = excluded();
  const auto took_part = [&](int node) {
    return std::binary_search(attempt.members.begin(), attempt.members.end(), node);
  };
  for (const int node : joining_) {
    idle_starts_[node] += took_part(node) ? 0 : 1;
  }
  joining_ = attempt.joining;
  if (attempt.made_step) {
    for (const int node : attempt.members) {
      idle_starts_[node] = 0;
    }
  } else {
    for (const int node : attempt.gone) {
      ++idle_starts_[node];
    }
  }
  std::vector<int> newly;
  const auto after = excluded();
  std::set_difference(
      after.begin(), after.end(), before.begin(), before.end(),
      std::back_inserter(newly));
  return newly;
}

std::vector<int> HostChanges::excluded() const {
  std::vector<int> nodes;
  for (const auto& [node, starts] : idle_starts_) {
    if (starts >= kMostIdleStarts) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

}  // namespace tandem
