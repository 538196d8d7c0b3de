#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/report/run_report.h"
#include "tests/base/test_tools.h"

namespace tandem {

/// Fixture for tests of reports. It writes the files of a comparison; the test chooses
/// the rows and curves.
class SomeRuns : public testing::Test {
 protected:
  using json = nlohmann::ordered_json;
  // Training time in seconds and test accuracy in percent, for each evaluation. An
  // evaluation follows every 100 samples.
  using Accuracies = std::vector<std::pair<double, double>>;

  // Adds a regression. The values are mean absolute errors.
  void add_errors(const std::string& name, const Accuracies& curve) {
    add(name, curve, {{"test_mae", curve.back().second}}, "test_mae");
  }

  // Adds a run with a validation part.
  void add_validated(const std::string& name, const Accuracies& curve) {
    add(name, curve, {}, "validation_accuracy", "validation");
  }

  void add(
      const std::string& name, const Accuracies& curve, const json& more = {},
      const char* key = "test_accuracy", const char* part = "test") {
    json row = {{"name", name},
                {"recipe", name + ".toml"},
                {"status", "done"},
                {"epochs", curve.size()},
                {"world_size", 2},
                {"wall_seconds", curve.empty() ? 1 : curve.back().first + 1}};
    row.update(more.is_null() ? json::object() : more);
    rows_.push_back(row);
    std::vector<json> lines;
    for (const auto& [seconds, value] : curve) {
      lines.push_back(
          {{"kind", part},
           {"samples", 100 * (lines.size() + 1)},
           {"train_seconds", seconds},
           {key, value}});
    }
    metrics(name, lines);
  }

  void metrics(const std::string& name, const std::vector<json>& lines) const {
    std::string text;
    for (const auto& line : lines) {
      text += line.dump() + "\n";
    }
    write(name + "/metrics.jsonl", text);
  }

  void write(const std::string& path, const std::string& text) const {
    make_directories(scratch_ / path.substr(0, path.rfind('/')));
    replace_file(scratch_ / path, text);
  }

  // Returns the table of a comparison (table.json) with these runs and with the entries
  // of `more`.
  json table(const json& more = {}) const {
    json made = {{"kind", "compare"}, {"rows", rows_}};
    made.update(more.is_null() ? json::object() : more);
    return made;
  }

  // Writes the report of table(more) and returns the text of report.html.
  std::string report(const json& more = {}) const {
    auto made = table(more);
    app::write_report(scratch_.path(), made);
    return read_file(scratch_ / "report.html");
  }

  const Scratch scratch_;
  json rows_ = json::array();
};

}  // namespace tandem
