#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/report/line_chart.h"

namespace tandem::app {

/// What a row of table.json and the run's metrics.jsonl tell a report.
struct ReportRun {
  std::string name;
  // As it was written: a path.
  std::string recipe;
  bool done = false;
  int ranks = 0;
  // Made; negative where nobody knows.
  int64_t epochs = -1;
  // Of the whole program, the median where it was repeated.
  std::optional<double> seconds;
  std::optional<double> least_seconds;
  std::optional<double> most_seconds;
  // How many times as fast as on the fewest ranks; of a scaling.
  std::optional<double> speed_up;
  std::optional<double> least_speed_up;
  std::optional<double> most_speed_up;
  std::optional<double> samples_per_second;
  std::optional<double> megabytes_sent;
  std::optional<double> exposed_ms;
  std::optional<double> memory_mib;
  std::optional<double> device_memory_mib;
  // Seconds of training at which its test accuracy was first at the target, the median
  // where it was repeated; nullopt where it never was, or there is no target.
  std::optional<double> arrival;

  std::optional<double> document_seconds;
  std::optional<double> document_accuracy;
  // Those of its recipe, which are the document's.
  int64_t document_epochs = -1;
  // Samples that it was limited to; 0 for all.
  int64_t limit = 0;

  // x is seconds of training, or samples.
  std::vector<Point> accuracy_by_seconds;
  std::vector<Point> accuracy_by_samples;
  std::vector<Point> loss_by_seconds;
  std::vector<Point> loss_by_samples;
};

/// All rows of a table, with the curves of runs in `directory`; of repeated runs those
/// of the median one. `target`: percent.
std::vector<ReportRun> read_report_runs(
    const nlohmann::ordered_json& table, const std::string& directory,
    std::optional<double> target);

}  // namespace tandem::app
