#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/config/options/metric.h"

namespace tandem::app {

/// A value that a run reported, with the training time in seconds and the number of
/// samples at that point.
struct Measurement {
  double seconds = 0;
  double samples = 0;
  double value = 0;
};
using Curve = std::vector<Measurement>;

/// A run in a report: its row of the report's table.json and the data read from its
/// directory.
struct ReportRun {
  nlohmann::ordered_json row;
  std::string name;
  // Directory with the files of the run.
  std::string directory;
  bool done = false;
  // Metric of the run's loss; the accuracy if the run has no test result.
  const Metric* metric = &kAccuracy;
  // Part of `test_metric` and `test_loss`: "validation", or "test" if the run has no
  // validation part.
  std::string part = "test";
  // Values of `metric` on the part. If runs were repeated, the curves are those of the
  // median run.
  Curve test_metric;
  Curve test_loss;
  Curve train_loss;
  Curve lr;
  // Points at which the run was resumed or restarted; the values are steps.
  Curve resumes;
  // Training time, in seconds, at which the accuracy in `test_metric` first reached the
  // target; the median if runs were repeated. The value is nullopt if there is no
  // target or if the run did not reach it.
  std::optional<double> arrival;
  // Start of the run, such as "2026-11-25 03:12 UTC"; "" if environment.json does not
  // contain it.
  std::string started;
  // Lines of config.toml that differ from the defaults, such as "batch_size = 32".
  std::vector<std::string> settings;
};

/// Returns the first measurement with the best value in run.test_metric, which must not
/// be empty.
const Measurement& best_of(const ReportRun& run);

/// Returns "validation " if the runs have a validation part, "" if they have none, and
/// "validation or test " if only some of the runs have one. Leaves out runs without
/// results.
std::string parts_of(const std::vector<ReportRun>& runs);

/// Reads the runs of a table. `directory` contains the table. `target` is the accuracy
/// to reach, in percent.
std::vector<ReportRun> read_report_runs(
    const nlohmann::ordered_json& table, const std::string& directory,
    std::optional<double> target);

}  // namespace tandem::app
