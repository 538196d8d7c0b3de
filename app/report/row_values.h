#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tandem::app {

inline constexpr double kMegabyte = 1e6;

/// Returns the number under a key of a row of table.json; nullopt if there is none.
inline std::optional<double> number_in(
    const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number() ||
      !std::isfinite(found->get<double>())) {
    return std::nullopt;
  }
  return found->get<double>();
}

/// Returns the text under a key of a row; "" if there is none.
inline std::string text_in(const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Returns the object or list under a key of a row; null if there is none.
inline nlohmann::ordered_json part_in(
    const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_structured() ? *found
                                                      : nlohmann::ordered_json();
}

/// Returns the tutorial's figures in a row, also if they have the old key "document";
/// null if there are none.
inline nlohmann::ordered_json tutorial_in(const nlohmann::ordered_json& row) {
  return part_in(row, row.contains("tutorial") ? "tutorial" : "document");
}

/// Returns the time of the whole program, or the training time if only that is known,
/// in seconds; nullopt if neither is known.
inline std::optional<double> seconds_in(const nlohmann::ordered_json& row) {
  for (const char* key : {"wall_seconds", "program_seconds", "train_seconds"}) {
    if (const auto seconds = number_in(row, key)) {
      return seconds;
    }
  }
  return std::nullopt;
}

}  // namespace tandem::app
