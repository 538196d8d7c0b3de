#include "app/report/run_report.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/report/row_values.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

bool has_rows(const ordered_json& table) {
  const auto rows = table.find("rows");
  return rows != table.end() && rows->is_array() &&
         std::all_of(rows->begin(), rows->end(), [](const ordered_json& row) {
           return row.is_object();
         });
}

ordered_json table_of_run(const std::string& directory) {
  ordered_json row;
  // The summary is missing if the run was stopped.
  if (file_exists(directory + "/summary.json")) {
    row = read_json(directory + "/summary.json");
  }
  const auto whole = std::filesystem::weakly_canonical(directory);
  row["name"] = row.value("name", whole.filename().string());
  row["recipe"] = row["name"];
  const bool done = metric_in(row) != nullptr;
  row["status"] = done ? "done" : "failed";
  row["reason"] = done ? "" : "it has no summary.json";
  row["directory"] = ".";
  ordered_json table;
  table["kind"] = "run";
  table["machine"] = machine_of(directory);
  table["rows"] = ordered_json::array({row});
  return table;
}

}  // namespace

ordered_json read_json(const std::string& path) {
  auto json = ordered_json::parse(read_file(path), nullptr, false);
  if (!json.is_object()) {
    throw DataError(
        "[app] '" + path +
        "' is not a JSON object; choose another directory, or run it again");
  }
  return json;
}

ordered_json machine_of(const std::string& directory) {
  const std::string path = directory + "/environment.json";
  ordered_json machine = ordered_json::object();
  if (file_exists(path)) {
    const auto environment = read_json(path);
    for (const char* key : {"cpu", "usable_cpus", "libtorch"}) {
      if (environment.contains(key)) {
        machine[key] = environment[key];
      }
    }
  }
  return machine;
}

ordered_json read_run_table(const std::string& directory) {
  for (const char* name : {kCompareTable, kScalingTable}) {
    const std::string path = directory + "/" + name;
    if (file_exists(path)) {
      auto table = read_json(path);
      if (!has_rows(table)) {
        throw DataError("[app] '" + path + "' has no rows; make it again");
      }
      return table;
    }
  }
  if (file_exists(directory + "/metrics.jsonl")) {
    return table_of_run(directory);
  }
  throw DataError(
      "[app] '" + directory +
      "' has none of table.json, scaling.json and "
      "metrics.jsonl; name a directory that compare, scaling or train --out wrote");
}

Conclusions write_report(const std::string& directory, ordered_json& table) {
  auto conclusions = add_conclusions(table, directory);
  replace_file(directory + "/report.html", make_page(table, conclusions));
  return conclusions;
}

}  // namespace tandem::app
