#include "tandem/launch/status/status_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/launch/status/run_status.h"

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

// Key of host 0's last line about a stall.
constexpr const char* kStall = "launch/stall";
constexpr size_t kMostLineBytes = 1000;

std::string status_key(int node) {
  return "launch/status/" + std::to_string(node);
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
    longest = status.suspended ? longest : std::max(longest, status.waiting_seconds);
  }
  // Ranks that began to wait a little later also wait for the missing ranks.
  const double least = longest >= seconds_ ? longest / 2 : seconds_;
  for (const auto& status : statuses) {
    const bool waits = !status.suspended && status.waiting_seconds >= least;
    (waits ? waiting : missing).push_back(&status);
  }
  const bool halted = std::any_of(
      statuses.begin(), statuses.end(), [](const auto& one) { return one.suspended; });
  if (waiting.empty() && halted) {
    return "";
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

StatusExchange::StatusExchange(
    const StatusBoard& board, int node, int nnodes, double stall_seconds)
    : board_(board), node_(node), nnodes_(nnodes), stalls_(stall_seconds) {}

bool StatusExchange::is_due() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) {
    return false;
  }
  next_ = now + std::chrono::seconds(1);
  return true;
}

std::optional<std::vector<RankStatus>> StatusExchange::collect(StoreServer* server) {
  if (!is_due()) {
    return std::nullopt;
  }
  auto all = board_.read();
  bool complete = true;
  for (int node = 1; node < nnodes_; ++node) {
    const auto text = server->get(status_key(node));
    const auto others = statuses_from_json(text.value_or("[]"));
    complete = complete && !others.empty();
    all.insert(all.end(), others.begin(), others.end());
  }
  const std::string line = complete ? stalls_.look(all) : "";
  if (!line.empty()) {
    log_info(line);
    if (server != nullptr) {
      server->set(kStall, line);
    }
  }
  return all;
}

void StatusExchange::tell(StoreClient& client) {
  if (!is_due()) {
    return;
  }
  client.set(status_key(node_), to_json(board_.read()));
  if (!client.has({kStall})) {
    return;
  }
  // Any process of the run can write this line, so it is shortened and made printable.
  const auto line = printable(client.get(kStall, {}).substr(0, kMostLineBytes));
  if (line != line_) {
    line_ = line;
    log_info(line);
  }
}

}  // namespace tandem
