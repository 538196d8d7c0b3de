#include "tandem/launch/status/status_exchange.h"

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/launch/status/status_json.h"

namespace tandem {

namespace {

// Key of host 0's last line about a stall.
constexpr const char* kStall = "launch/stall";
constexpr size_t kMostLineBytes = 1000;

std::string status_key(int node) {
  return "launch/status/" + std::to_string(node);
}

}  // namespace

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
