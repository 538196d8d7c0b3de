#include "tandem/launch/status/stall_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

std::vector<int> numbers_of(const std::vector<const RankStatus*>& ranks) {
  std::vector<int> numbers;
  for (const auto* rank : ranks) {
    numbers.push_back(rank->rank);
  }
  return numbers;
}

std::string describe(const RankStatus& status) {
  std::string text = fmt::format(
      "rank {} (pid {}) is {}{}", status.rank, status.pid,
      status.suspended ? "suspended while " : "", name_of(status.activity));
  if (!status.operation.empty()) {
    text += ", waiting in " + status.operation + ",";
  }
  if (status.step >= 0) {
    text += fmt::format(" after step {}", status.step);
  }
  return text;
}

// Describes the communication in which ranks wait, such as "ranks 0 and 1 in barrier
// #3".
std::string describe_waits(const std::vector<const RankStatus*>& waiting) {
  std::map<std::string, std::vector<int>> ranks;
  for (const auto* rank : waiting) {
    ranks[rank->operation].push_back(rank->rank);
  }
  std::vector<std::string> parts;
  for (const auto& [operation, numbers] : ranks) {
    parts.push_back(with_numbers("rank", numbers) + " in " + operation);
  }
  return join(parts);
}

}  // namespace

std::string StallWatch::look(const std::vector<RankStatus>& statuses) {
  std::vector<const RankStatus*> waiting;
  std::vector<const RankStatus*> missing;
  double longest = 0;
  for (const auto& status : statuses) {
    if (status.pid == 0 || seconds_ == 0 || statuses.size() < 2) {
      return "";
    }
    const bool waits = !status.suspended && status.waiting_seconds >= seconds_;
    (waits ? waiting : missing).push_back(&status);
    longest = waits ? std::max(longest, status.waiting_seconds) : longest;
  }
  if (waiting.empty()) {
    return std::exchange(stalled_, false) ? "[launch] the ranks continue" : "";
  }
  if (std::exchange(stalled_, true) && numbers_of(missing) == missing_) {
    return "";
  }
  missing_ = numbers_of(missing);
  std::vector<std::string> parts;
  for (const auto* rank : missing) {
    parts.push_back(describe(*rank));
  }
  return fmt::format(
      "[launch] no progress for {:.0f} s: {} {}", longest, describe_waits(waiting),
      missing.empty()
          ? "wait, but no rank is missing; they may not all have called "
            "the same operations"
          : "wait for " + with_numbers("rank", missing_) + "; " + join(parts));
}

}  // namespace tandem
