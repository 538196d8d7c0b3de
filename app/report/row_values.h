#pragma once

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tandem/config/options/metric.h"

namespace tandem::app {

inline constexpr double kMegabyte = 1e6;

/// Returns the number under a key of a row of table.json; nullopt if there is no
/// number.
inline std::optional<double> number_in(
    const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number() ||
      !std::isfinite(found->get<double>())) {
    return std::nullopt;
  }
  return found->get<double>();
}

/// Returns the text under a key of a row; "" if there is no text.
inline std::string text_in(const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Returns the object or list under a key of a row; null if there is no object or list.
inline nlohmann::ordered_json part_in(
    const nlohmann::ordered_json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_structured() ? *found
                                                      : nlohmann::ordered_json();
}

/// Returns the metric whose value on the samples of a part, such as "test", is in a
/// row. The row is from table.json, summary.json or metrics.jsonl. Returns null if the
/// row has no such metric.
inline const Metric* metric_in(
    const nlohmann::ordered_json& row, const std::string& part = "test") {
  for (const Metric* metric : kMetrics) {
    if (row.contains(part + "_" + metric->key)) {
      return metric;
    }
  }
  return nullptr;
}

/// Returns the value of a metric as text, such as "99.25 %".
inline std::string value_text(const Metric& metric, double value) {
  return metric.is_percentage ? fmt::format("{:.2f} %", value)
                              : fmt::format("{:.4g}", value);
}

/// Returns the tutorial's figures in a row, also if they have the old key "document";
/// null if there are none.
inline nlohmann::ordered_json tutorial_in(const nlohmann::ordered_json& row) {
  return part_in(row, row.contains("tutorial") ? "tutorial" : "document");
}

/// Returns the time of the whole program, in seconds. If only the training time is
/// known, returns the training time; nullopt if neither is known.
inline std::optional<double> seconds_in(const nlohmann::ordered_json& row) {
  for (const char* key : {"wall_seconds", "program_seconds", "train_seconds"}) {
    if (const auto seconds = number_in(row, key)) {
      return seconds;
    }
  }
  return std::nullopt;
}

}  // namespace tandem::app
