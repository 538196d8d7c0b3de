#include "app/report/report_run.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "app/report/row_values.h"
#include "tandem/base/files.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

void add_point(
    ReportRun& run, const ordered_json& line, const char* key,
    std::vector<Point> ReportRun::*by_seconds,
    std::vector<Point> ReportRun::*by_samples) {
  const auto value = number_in(line, key);
  if (!value) {
    return;
  }
  if (const auto seconds = number_in(line, "train_seconds")) {
    (run.*by_seconds).push_back({*seconds, *value});
  }
  const auto samples = number_in(line, "samples");
  (run.*by_samples)
      .push_back({samples ? *samples : number_in(line, "step").value_or(0), *value});
}

// Every whole line of metrics.jsonl that is a report is a point; a killed run leaves
// half a line.
void read_curves(ReportRun& run, const std::string& path) {
  if (!file_exists(path)) {
    return;
  }
  std::istringstream lines(read_file(path));
  for (std::string text; std::getline(lines, text);) {
    const auto line = ordered_json::parse(text, nullptr, false);
    if (!line.is_object()) {
      continue;
    }
    if (text_in(line, "kind") == "test") {
      add_point(
          run, line, "test_accuracy", &ReportRun::accuracy_by_seconds,
          &ReportRun::accuracy_by_samples);
    } else if (text_in(line, "kind") == "train") {
      add_point(
          run, line, "loss", &ReportRun::loss_by_seconds, &ReportRun::loss_by_samples);
    }
  }
}

// Infinite where it never was.
double arrival_of(const ReportRun& run, double target) {
  for (const auto& point : run.accuracy_by_seconds) {
    if (point.y >= target) {
      return point.x;
    }
  }
  return std::numeric_limits<double>::infinity();
}

std::vector<std::string> directories_of(const ordered_json& row) {
  std::vector<std::string> directories;
  for (const auto& run : part_in(row, "runs")) {
    if (run.is_object()) {
      directories.push_back(text_in(run, "directory"));
    }
  }
  return directories;
}

std::optional<double> median_arrival(
    const ordered_json& row, const ReportRun& drawn, const std::string& directory,
    double target) {
  std::vector<double> arrivals;
  for (const auto& name : directories_of(row)) {
    ReportRun repeat;
    read_curves(repeat, directory + "/" + name + "/metrics.jsonl");
    arrivals.push_back(arrival_of(repeat, target));
  }
  if (arrivals.empty()) {
    arrivals.push_back(arrival_of(drawn, target));
  }
  std::sort(arrivals.begin(), arrivals.end());
  // The later of the two in the middle: half of the runs at least had arrived.
  const double median = arrivals[arrivals.size() / 2];
  return std::isfinite(median) ? std::optional<double>(median) : std::nullopt;
}

void read_document(ReportRun& run, const ordered_json& row) {
  const auto document = part_in(row, "document");
  run.document_seconds = number_in(document, "seconds");
  run.document_accuracy = number_in(document, "test_accuracy");
  run.document_epochs =
      static_cast<int64_t>(number_in(document, "epochs").value_or(-1));
}

ReportRun read_run(const ordered_json& row) {
  ReportRun run;
  run.name = text_in(row, "name");
  run.recipe = text_in(row, "recipe");
  run.done = text_in(row, "status") == "done";
  run.ranks = static_cast<int>(number_in(row, "world_size").value_or(0));
  run.epochs = static_cast<int64_t>(number_in(row, "epochs").value_or(-1));
  run.limit = static_cast<int64_t>(number_in(row, "limit").value_or(0));
  run.seconds = seconds_in(row);
  const auto range = part_in(row, "wall_seconds_range");
  run.least_seconds = number_in(range, "least");
  run.most_seconds = number_in(range, "most");
  run.speed_up = number_in(row, "speed_up");
  const auto speed_ups = part_in(row, "speed_up_range");
  run.least_speed_up = number_in(speed_ups, "least");
  run.most_speed_up = number_in(speed_ups, "most");
  run.samples_per_second = number_in(row, "samples_per_second");
  run.megabytes_sent = number_in(row, "bytes_sent_per_rank");
  if (run.megabytes_sent) {
    *run.megabytes_sent /= kMegabyte;
  }
  run.exposed_ms = number_in(row, "exposed_comm_ms_per_step");
  run.memory_mib = number_in(row, "peak_memory_mib");
  run.device_memory_mib = number_in(row, "peak_device_memory_mib");
  read_document(run, row);
  return run;
}

}  // namespace

std::vector<ReportRun> read_report_runs(
    const ordered_json& table, const std::string& directory,
    std::optional<double> target) {
  std::vector<ReportRun> runs;
  for (const auto& row : table["rows"]) {
    ReportRun run = read_run(row);
    const std::string own = text_in(row, "directory");
    read_curves(
        run, directory + "/" + (own.empty() ? run.name : own) + "/metrics.jsonl");
    if (target) {
      run.arrival = median_arrival(row, run, directory, *target);
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace tandem::app
