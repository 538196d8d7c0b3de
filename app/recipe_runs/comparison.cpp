#include "app/recipe_runs/comparison.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/bench_spread.h"
#include "app/recipe_name.h"
#include "app/report/row_values.h"
#include "app/report/run_report.h"
#include "app/report/run_table.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/data/named_datasets.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

constexpr int kFormatVersion = 1;

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

// Merges the rows of several runs of a recipe into one row of table.json.
//
// Measured figures, such as times, accuracies and memory, are medians, each computed
// separately. Other values, such as `directory`, come from the run with the median
// time (seconds_in()). For an even number of runs, this is the faster of the two
// middle runs. The key `runs` lists the figures of each run. The key
// `wall_seconds_range` has the least and the greatest `wall_seconds`.
//
// If the last run is not done, returns its row and adds the number of the run to the
// reason. Returns a single row unchanged. There must be at least one row.
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

std::string table_of(const std::string& kind) {
  return kind == "scaling" ? kScalingTable : kCompareTable;
}

std::string result_of(const ordered_json& row) {
  if (row["status"] != "done") {
    return row.value("status", "") + ": " + row.value("reason", "");
  }
  const Metric* metric = metric_in(row);
  return fmt::format(
      "{} in {:.1f} s",
      metric == nullptr
          ? "no test result"
          : value_text(*metric, number_in(row, test_key(*metric).c_str()).value_or(0)),
      row.value("wall_seconds", 0.0));
}

// Writes the tables and the report, and returns the table for the terminal. Called
// after every run, so that a stopped comparison keeps its results.
std::string write_all_files(
    const std::string& out, const std::string& kind, ordered_json table) {
  const Conclusions conclusions = write_report(out, table);
  RunTable shown = make_run_table(table, false);
  shown.notes.push_back(conclusions.counts + ".");
  if (!conclusions.verdict.empty()) {
    shown.notes.push_back(conclusions.verdict);
  }
  shown.notes.insert(
      shown.notes.end(), conclusions.caveats.begin(), conclusions.caveats.end());
  replace_file(
      out + "/" + table_of(kind),
      table.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  replace_file(out + "/table.md", to_markdown(shown));
  return to_text(shown);
}

// Returns whether the directory contains a finished run of an earlier comparison, or a
// checkpoint of an unfinished run. A table that cannot be read counts as a result.
bool has_results(const std::string& directory, const std::string& table) {
  const auto json =
      ordered_json::parse(read_file(directory + "/" + table), nullptr, false);
  if (!json.is_object() || !json.contains("rows")) {
    return true;
  }
  const auto& rows = json["rows"];
  const bool any_done = std::any_of(rows.begin(), rows.end(), [](const auto& row) {
    return !row.is_object() || row.value("status", "done") == "done";
  });
  const auto names = list_directory(directory);
  return any_done || std::any_of(names.begin(), names.end(), [&](const auto& name) {
           const auto checkpoints = directory + "/" + name + "/checkpoints";
           return file_exists(checkpoints) && !newest_checkpoint(checkpoints).empty();
         });
}

// Throws DataError if the data of all recipes is missing. Warns if the data of some
// recipes is missing.
void check_data(const Comparison& comparison) {
  std::vector<std::string> missing;
  std::vector<std::string> recipes;
  for (const auto& run : comparison.runs) {
    const auto& name = run.config.data.source;
    if (!dataset_is_missing(name)) {
      continue;
    }
    recipes.push_back(run.name);
    if (std::find(missing.begin(), missing.end(), name) == missing.end()) {
      missing.push_back(name);
    }
  }
  if (missing.empty()) {
    return;
  }
  const std::string remedy = "; run tandem data fetch " +
                             join(missing, " and tandem data fetch ") +
                             ", or choose another --data";
  if (recipes.size() == comparison.runs.size()) {
    throw DataError(
        "[" + comparison.kind + "] no run was started because data is missing: " +
        join(missing, " and ") + remedy);
  }
  log_warning(fmt::format(
      "[{}] {} of {} runs are skipped because data is missing, {}: {}{}",
      comparison.kind, recipes.size(), comparison.runs.size(), join(missing, " and "),
      join(recipes), remedy));
}

void note_machine(ordered_json& table, const std::string& directory) {
  if (table["machine"].empty() && file_exists(directory + "/environment.json")) {
    table["machine"] = machine_of(directory);
  }
}

// Returns `out`, or a new name if `out` is empty. Throws ConfigError if the directory
// contains results of an earlier comparison.
std::string comparison_directory(const std::string& out, const std::string& kind) {
  const std::string directory = !out.empty() ? out
                                             : fmt::format(
                                                   "{}-{:%Y%m%d-%H%M%S}", kind,
                                                   fmt::localtime(std::time(nullptr)));
  for (const char* name : {kCompareTable, kScalingTable}) {
    const bool own = name == table_of(kind);
    if (file_exists(directory + "/" + name) && (!own || has_results(directory, name))) {
      throw ConfigError(
          "[" + kind + "] '" + directory + "' holds an earlier comparison (" + name +
          "); choose another --out");
    }
  }
  return directory;
}

}  // namespace

void add_comparison_flags(CLI::App& app, Comparison& comparison) {
  auto& flags = comparison.train_flags;
  const auto add_train_flag = [&](const std::string& flag, const std::string& help) {
    const auto take = [&flags, flag](const std::vector<std::string>& values) {
      for (const auto& value : values) {
        if (!value.empty()) {
          flags.insert(flags.end(), {flag, value});
        }
      }
    };
    return app.add_option_function<std::vector<std::string>>(flag, take, help)
        ->type_size(1)
        ->expected(1);
  };
  app.add_option(
         "recipes", comparison.recipes,
         "recipes: TOML files, or names of installed recipes")
      ->required();
  add_train_flag("--data", "data set of every run: a name or a folder");
  add_train_flag("--limit", "number of samples of every run, chosen as by tandem train")
      ->type_name("INT")
      ->check(whole_number(0));
  add_train_flag("--epochs", "number of epochs of every run")
      ->type_name("INT")
      ->check(whole_number(0));
  add_train_flag("--set", "key=value: a setting of every run")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option(
         "--repeat", comparison.repeats,
         "number of runs of each recipe, in turn; figures are medians")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  app.add_option(
      "--out", comparison.out,
      "directory for tables, report and runs (default: a new one in the current "
      "directory)");
}

void parse_comparison(
    CLI::App& app, const Arguments& arguments, Comparison& comparison) {
  parse(app, arguments);
  auto& recipes = comparison.recipes;
  std::transform(recipes.begin(), recipes.end(), recipes.begin(), &recipe_path);
  comparison.out = comparison_directory(comparison.out, comparison.kind);
}

PlannedRun& add_run(
    Comparison& comparison, const std::string& recipe, int nproc,
    const GridPoint& point) {
  comparison.runs.push_back(plan_run(
      recipe, comparison.train_flags, nproc, point, comparison.repeats, comparison.out,
      comparison.directories));
  return comparison.runs.back();
}

int run_comparison(const Comparison& comparison) {
  const auto& [kind, out, runs, repeats] =
      std::tie(comparison.kind, comparison.out, comparison.runs, comparison.repeats);
  check_data(comparison);
  ignore_closed_readers();
  make_directories(out);
  ordered_json table;
  table["format_version"] = kFormatVersion;
  table["kind"] = kind;
  table["machine"] = ordered_json::object();
  table["repeats"] = repeats;
  if (comparison.target) {
    table["target_accuracy"] = *comparison.target;
  }
  table["rows"] = ordered_json::array();
  std::vector<std::vector<ordered_json>> made(runs.size());
  std::string shown;
  for (int pass = 0; pass < repeats; ++pass) {
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto& run = runs[i];
      if (pass > 0 && made[i].back()["status"] != "done") {
        continue;
      }
      const std::string which =
          repeats > 1 ? fmt::format(", run {} of {}", pass + 1, repeats) : "";
      log_info(fmt::format(
          "[{}] {}/{} {}{} ...", kind, i + 1, runs.size(), run.name, which));
      made[i].push_back(run_planned(run, pass, out));
      log_info(fmt::format("[{}] {}", kind, result_of(made[i].back())));
      table["rows"][i] = merge_repeats(made[i]);
      note_machine(table, out + "/" + run.name);
      shown = write_all_files(out, kind, table);
    }
  }
  fmt::print("{}", shown);
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
