#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tandem::app {

inline constexpr double kMegabyte = 1e6;

/// A number of a row of table.json; nullopt where there is none.
inline std::optional<double> number_in(
    const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number() ||
      !std::isfinite(found->get<double>())) {
    return std::nullopt;
  }
  return found->get<double>();
}

/// A text of a row; "" where there is none.
inline std::string text_in(const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

/// An object or a list of a row; an empty one of nothing where there is none.
inline nlohmann::ordered_json part_in(
    const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_structured() ? *found
                                                      : nlohmann::ordered_json();
}

/// The whole program's seconds, or those of training where only they are known.
inline std::optional<double> seconds_in(const nlohmann::ordered_json& row) {
  const auto whole = number_in(row, "wall_seconds");
  return whole ? whole : number_in(row, "train_seconds");
}

}  // namespace tandem::app
