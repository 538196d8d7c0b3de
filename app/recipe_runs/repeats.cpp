#include "app/recipe_runs/repeats.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/bench_spread.h"
#include "app/report/row_values.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

const char* const kMeasured[] = {"wall_seconds",    "train_seconds",
                                 "program_seconds", "samples_per_second",
                                 "peak_memory_mib", "exposed_comm_ms_per_step",
                                 "test_accuracy",   "peak_device_memory_mib",
                                 "train_accuracy",  "test_loss",
                                 "test_mae",        "train_mae"};

std::vector<double> values_of(const std::vector<ordered_json>& runs, const char* key) {
  std::vector<double> values;
  for (const auto& run : runs) {
    if (const auto value = number_in(run, key)) {
      values.push_back(*value);
    }
  }
  return values;
}

const ordered_json& median_run(const std::vector<ordered_json>& runs) {
  std::vector<const ordered_json*> sorted;
  for (const auto& run : runs) {
    sorted.push_back(&run);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return seconds_in(*a).value_or(0) < seconds_in(*b).value_or(0);
  });
  return *sorted[(sorted.size() - 1) / 2];
}

ordered_json own_figures(const ordered_json& run) {
  ordered_json own = {{"directory", run["directory"]}};
  for (const char* key : kMeasured) {
    if (run.contains(key)) {
      own[key] = run[key];
    }
  }
  return own;
}

}  // namespace

ordered_json merge_repeats(const std::vector<ordered_json>& runs) {
  const auto& last = runs.back();
  if (runs.size() == 1) {
    return last;
  }
  if (text_in(last, "status") != "done") {
    ordered_json row = last;
    row["reason"] = fmt::format("run {}: {}", runs.size(), text_in(last, "reason"));
    return row;
  }
  ordered_json row = median_run(runs);
  for (const char* key : kMeasured) {
    if (const auto values = values_of(runs, key); !values.empty()) {
      row[key] = spread_of(values).median;
    }
  }
  const auto seconds = values_of(runs, "wall_seconds");
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  row["wall_seconds_range"] = {{"least", *least}, {"most", *most}};
  row["runs"] = ordered_json::array();
  for (const auto& run : runs) {
    row["runs"].push_back(own_figures(run));
  }
  return row;
}

}  // namespace tandem::app
