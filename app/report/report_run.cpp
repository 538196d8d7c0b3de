#include "app/report/report_run.h"

#include <algorithm>
#include <limits>
#include <set>

#include "app/report/row_values.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/config/fields.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

void add_measurement(Curve& curve, const ordered_json& line, const char* key) {
  const auto value = number_in(line, key);
  const auto seconds = number_in(line, "train_seconds");
  const auto samples = number_in(line, "samples");
  if (value && seconds && samples) {
    curve.push_back({*seconds, *samples, *value});
  }
}

// Reads metrics.jsonl. Skips lines that are not JSON, such as the incomplete last line
// of a killed run.
void read_curves(ReportRun& run, const std::string& directory) {
  const std::string path = directory + "/metrics.jsonl";
  if (!file_exists(path)) {
    return;
  }
  const std::string content = read_file(path);
  // With a validation part, the test part is evaluated only once.
  const bool has_validation =
      content.find(R"("kind":"validation")") != std::string::npos;
  const std::string& part = run.part = has_validation ? "validation" : "test";
  for (const auto& text : split(content, '\n')) {
    const auto line = ordered_json::parse(text, nullptr, false);
    if (!line.is_object()) {
      continue;
    }
    if (text_in(line, "kind") == part) {
      if (const Metric* metric = metric_in(line, part)) {
        run.metric = metric;
        add_measurement(run.test_metric, line, (part + "_" + metric->key).c_str());
      }
      add_measurement(run.test_loss, line, (part + "_loss").c_str());
    } else if (text_in(line, "kind") == "train") {
      add_measurement(run.train_loss, line, "loss");
      add_measurement(run.lr, line, "lr");
    } else if (text_in(line, "kind") == "resume") {
      add_measurement(run.resumes, line, "step");
    }
  }
}

// Returns the seconds until the target was reached; infinity if it was not reached.
double arrival_of(const Curve& accuracy, double target) {
  const auto found = std::find_if(
      accuracy.begin(), accuracy.end(),
      [&](const Measurement& at) { return at.value >= target; });
  return found == accuracy.end() ? std::numeric_limits<double>::infinity()
                                 : found->seconds;
}

std::optional<double> median_arrival(
    const ReportRun& run, const std::string& directory, double target) {
  std::vector<double> arrivals;
  for (const auto& repeat : part_in(run.row, "runs")) {
    if (repeat.is_object()) {
      ReportRun read;
      read_curves(read, directory + "/" + text_in(repeat, "directory"));
      arrivals.push_back(arrival_of(read.test_metric, target));
    }
  }
  if (arrivals.empty()) {
    arrivals.push_back(arrival_of(run.test_metric, target));
  }
  std::sort(arrivals.begin(), arrivals.end());
  // For an even number of runs, uses the later of the two middle arrivals, because at
  // that time at least half of the runs have reached the target.
  const double median = arrivals[arrivals.size() / 2];
  return std::isfinite(median) ? std::optional<double>(median) : std::nullopt;
}

// Returns the start in environment.json, such as "2026-11-25T03:12:58Z", in the form
// "2026-11-25 03:12 UTC".
std::string start_in(const std::string& directory) {
  const std::string path = directory + "/environment.json";
  if (!file_exists(path)) {
    return "";
  }
  const auto environment = ordered_json::parse(read_file(path), nullptr, false);
  const std::string started = text_in(environment, "started");
  constexpr size_t kMinutes = 16;
  return started.size() < kMinutes
             ? ""
             : started.substr(0, 10) + " " + started.substr(11, 5) + " UTC";
}

std::vector<std::string> changed_settings(const std::string& directory) {
  const std::string path = directory + "/config.toml";
  std::vector<std::string> changed;
  if (!file_exists(path)) {
    return changed;
  }
  const auto usual = split(to_toml(RunConfig{}), '\n');
  const std::set<std::string> defaults(usual.begin(), usual.end());
  for (const auto& line : split(read_file(path), '\n')) {
    const std::string key = line.substr(0, line.find(" = "));
    if (defaults.count(line) == 0 && key != "name" && key != "out") {
      changed.push_back(line);
    }
  }
  return changed;
}

}  // namespace

const Measurement& best_of(const ReportRun& run) {
  const bool higher = run.metric->higher_is_better;
  return *std::min_element(
      run.test_metric.begin(), run.test_metric.end(),
      [&](const Measurement& a, const Measurement& b) {
        return higher ? a.value > b.value : a.value < b.value;
      });
}

std::string parts_of(const std::vector<ReportRun>& runs) {
  std::set<std::string> parts;
  for (const auto& run : runs) {
    if (!run.test_metric.empty() || !run.test_loss.empty()) {
      parts.insert(run.part);
    }
  }
  return parts.count("validation") == 0 ? ""
         : parts.size() == 1            ? "validation "
                                        : "validation or test ";
}

std::vector<ReportRun> read_report_runs(
    const ordered_json& table, const std::string& directory,
    std::optional<double> target) {
  std::vector<ReportRun> runs;
  for (const auto& row : table["rows"]) {
    ReportRun run;
    run.row = row;
    run.name = text_in(row, "name");
    run.done = text_in(row, "status") == "done";
    const std::string own = text_in(row, "directory");
    const std::string files = directory + "/" + (own.empty() ? run.name : own);
    run.directory = files;
    read_curves(run, files);
    run.started = start_in(files);
    run.settings = changed_settings(files);
    if (target && run.metric == &kAccuracy) {
      run.arrival = median_arrival(run, directory, *target);
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace tandem::app
