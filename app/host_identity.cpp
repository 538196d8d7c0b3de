#include "app/host_identity.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/config/fields.h"

namespace tandem::app {

namespace {

using nlohmann::json;

// Returns the value of a setting that must be equal on all hosts. Hosts can have one
// file at different paths.
std::string shared_value(const RunConfig& config, const Field& field) {
  const auto text = field.text(config);
  return field.is_path(text) ? "a file" : text;
}

json settings_of(const RunConfig& config) {
  json settings = json::object();
  for (const auto& field : config_fields()) {
    if (!field.local) {
      settings[field.name] = shared_value(config, field);
    }
  }
  return settings;
}

std::string network_of(const RunConfig& config) {
  return config.model.kind == ModelKind::file ? sha256_of_file(network_file(config))
                                              : "";
}

void check_settings(const json& theirs, const RunConfig& config) {
  for (const auto& field : config_fields()) {
    const auto own = shared_value(config, field);
    const auto wanted = field.local ? own : theirs.value(field.name, own);
    if (own != wanted) {
      throw ConfigError(fmt::format(
          "{} is {}, expected {} as on host 0; change {}", field.name, own, wanted,
          field.flag()));
    }
  }
}

// Compares two results of DataReader::identity().
void check_data(const std::string& theirs, const std::string& own) {
  const auto lines_of = [](const std::string& text) {
    const auto lines = split(text, '\n');
    return std::set<std::string>(lines.begin(), lines.end());
  };
  const auto one = lines_of(theirs);
  const auto other = lines_of(own);
  std::vector<std::string> differing;
  std::set_symmetric_difference(
      one.begin(), one.end(), other.begin(), other.end(),
      std::back_inserter(differing));
  std::set<std::string> names;
  for (const auto& line : differing) {
    names.insert(line.substr(0, line.find(':')));
  }
  if (!names.empty()) {
    throw ConfigError(fmt::format(
        "the {} differ from those of host 0; give all hosts the same files, or name "
        "the folder of this host with --data",
        join({names.begin(), names.end()})));
  }
}

}  // namespace

HostIdentity::HostIdentity(
    Arguments arguments, const RunConfig& config, EarlierSettings earlier,
    DataReader* reader)
    : arguments_(std::move(arguments)),
      config_(config),
      earlier_(std::move(earlier)),
      reader_(reader) {}

std::optional<std::string> HostIdentity::text() {
  const auto data = reader_ == nullptr ? "" : reader_->identity();
  if (!data) {
    return std::nullopt;
  }
  const json text = {
      {"earlier", earlier_.text},
      {"settings", settings_of(config_)},
      {"network", network_of(config_)},
      {"data", *data}};
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool HostIdentity::check(const std::string& host_0) {
  const auto theirs = json::parse(host_0, nullptr, false);
  if (host_0 == accepted_ || !theirs.is_object()) {
    return true;
  }
  const auto data = reader_ == nullptr ? "" : reader_->identity();
  if (!data) {
    return false;
  }
  // The ranks of this host use the settings of the run that host 0 resumes.
  const EarlierSettings earlier{
      theirs.value("earlier", std::string()), "config.toml of host 0"};
  const auto config = parse_train_arguments(arguments_, nullptr, &earlier);
  check_settings(theirs.value("settings", json::object()), config);
  const auto network = theirs.value("network", std::string());
  if (network != network_of(config)) {
    throw ConfigError(
        "the file of --model differs from that of host 0; copy the file of host 0");
  }
  const auto their_data = theirs.value("data", std::string());
  const bool same_request = earlier.text == earlier_.text;
  if (same_request && !data->empty() && !their_data.empty()) {
    check_data(their_data, *data);
  }
  accepted_ = host_0;
  return true;
}

}  // namespace tandem::app
