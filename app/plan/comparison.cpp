#include "app/plan/comparison.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "app/recipe_name.h"
#include "app/report/run_report.h"
#include "app/report/run_table.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/standard_streams.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

constexpr int kFormatVersion = 1;

std::string json_path(const std::string& out, const std::string& kind) {
  return out + "/" + (kind == "scaling" ? kScalingTable : kCompareTable);
}

std::string result_of(const ordered_json& row) {
  if (row["status"] != "done") {
    return row.value("status", "") + ": " + row.value("reason", "");
  }
  return fmt::format(
      "{:.2f} % in {:.1f} s", row.value("test_accuracy", 0.0),
      row.value("wall_seconds", 0.0));
}

// After every run, so that a comparison which is stopped leaves what it has.
void write_all_files(
    const std::string& out, const std::string& kind, const ordered_json& table) {
  replace_file(
      json_path(out, kind),
      table.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  replace_file(out + "/table.md", to_markdown(make_run_table(table, false)));
  write_report(out, table);
}

void note_machine(ordered_json& table, const std::string& directory) {
  if (table["machine"].empty() && file_exists(directory + "/environment.json")) {
    table["machine"] = machine_of(directory);
  }
}

}  // namespace

void add_comparison_flags(CLI::App& app, ComparisonFlags& flags) {
  app.add_option("recipes", flags.recipes, "recipes (TOML), or names of installed ones")
      ->required()
      ->transform(recipe_name());
  app.add_option(
      "--data", flags.overrides.data, "data of every run: a name or a folder");
  app.add_option("--limit", flags.overrides.limit, "use the first N samples only")
      ->check(whole_number(0));
  app.add_option("--epochs", flags.overrides.epochs, "epochs of every run")
      ->check(whole_number(0));
  app.add_option("--set", flags.overrides.assignments, "key=value: any setting")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option(
      "--out", flags.out,
      "directory for tables, report and runs; none: a new one here");
}

std::string comparison_directory(const std::string& out, const std::string& kind) {
  const std::string directory = !out.empty() ? out
                                             : fmt::format(
                                                   "{}-{:%Y%m%d-%H%M%S}", kind,
                                                   fmt::localtime(std::time(nullptr)));
  for (const char* name : {kCompareTable, kScalingTable}) {
    if (file_exists(directory + "/" + name)) {
      throw ConfigError(
          "[" + kind + "] '" + directory + "' holds an earlier comparison (" + name +
          "); choose another --out");
    }
  }
  return directory;
}

int run_comparison(
    const std::string& kind, const std::vector<PlannedRun>& runs,
    const std::string& out) {
  outlive_readers();
  make_directories(out);
  ordered_json table;
  table["format_version"] = kFormatVersion;
  table["kind"] = kind;
  table["machine"] = ordered_json::object();
  table["rows"] = ordered_json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    log_info(fmt::format("[{}] {}/{} {} ...", kind, i + 1, runs.size(), run.name));
    table["rows"].push_back(run_planned(run, out));
    log_info(fmt::format("[{}] {}", kind, result_of(table["rows"].back())));
    note_machine(table, out + "/" + run.name);
    write_all_files(out, kind, table);
  }
  fmt::print("{}", to_text(make_run_table(table, false)));
  check_output();
  log_info(fmt::format("[{}] the report is {}/report.html", kind, out));
  const auto count = [&](const char* status) {
    return std::count_if(
        table["rows"].begin(), table["rows"].end(),
        [&](const ordered_json& row) { return row["status"] == status; });
  };
  return count("failed") > 0 || count("done") == 0 ? 1 : 0;
}

}  // namespace tandem::app
