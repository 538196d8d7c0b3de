#include "tandem/launch/status/run_status.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

// nlohmann::json calls these functions and those that the macro defines.
inline void to_json(nlohmann::json& json, Activity activity) {
  json = name_of(activity);
}

inline void from_json(const nlohmann::json& json, Activity& activity) {
  const auto* found = std::find(
      std::begin(kActivityNames), std::end(kActivityNames), json.get<std::string>());
  activity = static_cast<Activity>(found - std::begin(kActivityNames));
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    RankStatus, rank, host, pid, activity, suspended, operation, waiting_seconds, epoch,
    step, step_seconds, loss, learning_rate, samples_per_second, checkpoint_step,
    checkpoint_seconds)

namespace {

template <typename Condition>
const RankStatus* first_rank(
    const std::vector<RankStatus>& ranks, const Condition& condition) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), condition);
  return found == ranks.end() ? nullptr : &*found;
}

constexpr int kStatusVersion = 1;

// Throws nlohmann::json::exception if the JSON has another form.
std::vector<RankStatus> statuses_of(nlohmann::json list) {
  for (auto& entry : list) {
    // JSON has no NaN and infinity; they are written as null.
    for (const char* name : {"loss", "learning_rate", "samples_per_second"}) {
      if (entry.at(name).is_null()) {
        entry[name] = std::nan("");
      }
    }
  }
  auto statuses = list.get<std::vector<RankStatus>>();
  for (auto& status : statuses) {
    status.host = printable(status.host);
    status.operation = printable(status.operation);
  }
  return statuses;
}

// Replaces invalid UTF-8, which the name of a host may contain.
std::string printed(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
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

std::string to_json(const std::vector<RankStatus>& statuses) {
  return printed(statuses);
}

std::vector<RankStatus> statuses_from_json(const std::string& text) {
  try {
    return statuses_of(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::string to_json(const RunStatus& status) {
  return printed(
      {{"format_version", kStatusVersion},
       {"collected_at", status.collected_at},
       {"restarts", status.restarts},
       {"world_size", status.world_size},
       {"ranks", status.ranks}});
}

std::optional<RunStatus> run_status_from_json(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    RunStatus status;
    json.at("collected_at").get_to(status.collected_at);
    json.at("restarts").get_to(status.restarts);
    json.at("world_size").get_to(status.world_size);
    status.ranks = statuses_of(json.at("ranks"));
    return status;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace tandem
