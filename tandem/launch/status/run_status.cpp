#include "tandem/launch/status/run_status.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

namespace tandem {

namespace {

constexpr int kFormatVersion = 1;

template <typename Condition>
const RankStatus* first_rank(
    const std::vector<RankStatus>& ranks, const Condition& condition) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), condition);
  return found == ranks.end() ? nullptr : &*found;
}

}  // namespace

const RankStatus* RunStatus::furthest() const {
  const auto most = std::max_element(
      ranks.begin(), ranks.end(),
      [](const auto& left, const auto& right) { return left.step < right.step; });
  return most == ranks.end() || most->step < 0 ? nullptr : &*most;
}

const RankStatus* RunStatus::with_values() const {
  return first_rank(
      ranks, [](const auto& rank) { return rank.samples_per_second > 0; });
}

const RankStatus* RunStatus::with_checkpoint() const {
  return first_rank(ranks, [](const auto& rank) { return rank.checkpoint_step >= 0; });
}

RunStatus status_now(int world_size, int restarts, std::vector<RankStatus> ranks) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {
      std::chrono::duration<double>(now).count(), restarts, world_size,
      std::move(ranks)};
}

std::string to_json(const RunStatus& status) {
  const nlohmann::ordered_json json = {
      {"format_version", kFormatVersion},
      {"collected_at", status.collected_at},
      {"restarts", status.restarts},
      {"world_size", status.world_size},
      {"ranks", nlohmann::ordered_json::parse(to_json(status.ranks))}};
  return json.dump();
}

std::optional<RunStatus> run_status_from_json(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    RunStatus status;
    json.at("collected_at").get_to(status.collected_at);
    json.at("restarts").get_to(status.restarts);
    json.at("world_size").get_to(status.world_size);
    status.ranks = statuses_from_json(json.at("ranks").dump());
    return status;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace tandem
