#include "tandem/launch/status/run_status.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

namespace {

template <typename Condition>
const RankStatus* first_rank(
    const std::vector<RankStatus>& ranks, const Condition& condition) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), condition);
  return found == ranks.end() ? nullptr : &*found;
}

constexpr int kStatusVersion = 1;

// Calls `each` with the name and the value of each member of a RankStatus.
template <typename Status, typename Each>
void for_each_member(Status& status, const Each& each) {
  each("rank", status.rank);
  each("host", status.host);
  each("pid", status.pid);
  each("activity", status.activity);
  each("suspended", status.suspended);
  each("operation", status.operation);
  each("waiting_seconds", status.waiting_seconds);
  each("epoch", status.epoch);
  each("step", status.step);
  each("step_seconds", status.step_seconds);
  each("loss", status.loss);
  each("learning_rate", status.learning_rate);
  each("samples_per_second", status.samples_per_second);
  each("checkpoint_step", status.checkpoint_step);
  each("checkpoint_seconds", status.checkpoint_seconds);
}

template <typename T>
nlohmann::json json_of(const T& member) {
  return member;
}

nlohmann::json json_of(const Activity& member) {
  return name_of(member);
}

template <typename T>
void set_member(const nlohmann::json& value, T& member) {
  value.get_to(member);
}

// JSON has no NaN and infinity; they are written as null.
void set_member(const nlohmann::json& value, double& member) {
  member = value.is_null() ? std::nan("") : value.get<double>();
}

void set_member(const nlohmann::json& value, Activity& member) {
  const auto* found = std::find(
      std::begin(kActivityNames), std::end(kActivityNames), value.get<std::string>());
  member = static_cast<Activity>(found - std::begin(kActivityNames));
}

nlohmann::json json_of(const std::vector<RankStatus>& statuses) {
  auto list = nlohmann::json::array();
  for (const auto& status : statuses) {
    nlohmann::json entry;
    for_each_member(status, [&](const char* name, const auto& member) {
      entry[name] = json_of(member);
    });
    list.push_back(std::move(entry));
  }
  return list;
}

// Throws nlohmann::json::exception if the JSON has another form.
std::vector<RankStatus> statuses_of(const nlohmann::json& list) {
  std::vector<RankStatus> statuses;
  for (const auto& entry : list) {
    RankStatus& status = statuses.emplace_back();
    for_each_member(status, [&](const char* name, auto& member) {
      set_member(entry.at(name), member);
    });
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
  return printed(json_of(statuses));
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
       {"ranks", json_of(status.ranks)}});
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
