#include "app/report/run_report.h"

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "app/report/run_table.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem::app {

// Written by CMake from the files they are named after.
extern const std::string_view kReportHtml;
extern const std::string_view kChartJs;
extern const std::string_view kReportCss;
extern const std::string_view kReportJs;

namespace {

using nlohmann::ordered_json;

ordered_json read_json(const std::string& path) {
  auto json = ordered_json::parse(read_file(path), nullptr, false);
  if (!json.is_object()) {
    throw DataError("[app] '" + path + "' is not a JSON object; make it again");
  }
  return json;
}

ordered_json table_of_run(const std::string& directory) {
  ordered_json row;
  // A run that was stopped has no summary yet.
  if (file_exists(directory + "/summary.json")) {
    row = read_json(directory + "/summary.json");
  }
  const auto whole = std::filesystem::weakly_canonical(directory);
  row["name"] = row.value("name", whole.filename().string());
  row["recipe"] = row["name"];
  row["status"] = row.contains("test_accuracy") ? "done" : "failed";
  row["reason"] = row.contains("test_accuracy") ? "" : "it has no summary.json";
  row["directory"] = ".";
  ordered_json table;
  table["kind"] = "run";
  table["machine"] = machine_of(directory);
  table["rows"] = ordered_json::array({row});
  return table;
}

// Digits that no chart shows make a large file.
ordered_json rounded(const ordered_json& value) {
  if (!value.is_number()) {
    return nullptr;
  }
  return ordered_json::parse(
      fmt::format("{:.6g}", value.get<double>()), nullptr, false);
}

void add_point(
    ordered_json& curve, const ordered_json& line, const char* from, const char* to) {
  curve["samples"].push_back(line.value("samples", line.value("step", 0)));
  curve["seconds"].push_back(rounded(line.value("train_seconds", ordered_json())));
  curve[to].push_back(rounded(line.value(from, ordered_json())));
}

ordered_json empty_curve(const char* values) {
  ordered_json curve;
  for (const char* key : {"samples", "seconds", values}) {
    curve[key] = ordered_json::array();
  }
  return curve;
}

// Every whole line of metrics.jsonl that is a report is a point; a killed run leaves
// half a line.
void add_curves(ordered_json& run, const std::string& path) {
  run["train"] = empty_curve("loss");
  run["test"] = empty_curve("accuracy");
  if (!file_exists(path)) {
    return;
  }
  std::istringstream lines(read_file(path));
  for (std::string text; std::getline(lines, text);) {
    const auto line = ordered_json::parse(text, nullptr, false);
    if (!line.is_object()) {
      continue;
    }
    const std::string kind = line.value("kind", "");
    if (kind == "test") {
      add_point(run["test"], line, "test_accuracy", "accuracy");
    } else if (kind == "train") {
      add_point(run["train"], line, "loss", "loss");
    }
  }
}

ordered_json bars_of(const ordered_json& row) {
  ordered_json bars = ordered_json::object();
  const auto take = [&](const char* from, const char* to, double unit) {
    if (row.contains(from) && row[from].is_number()) {
      bars[to] = row[from].get<double>() / unit;
    }
  };
  take("train_seconds", "seconds", 1);
  take("wall_seconds", "seconds", 1);
  take("samples_per_second", "samples_per_second", 1);
  take("bytes_sent_per_rank", "megabytes", 1e6);
  take("exposed_comm_ms_per_step", "exposed", 1);
  take("peak_memory_mib", "memory", 1);
  return bars;
}

ordered_json chart_data(const std::string& directory, const ordered_json& table) {
  ordered_json data;
  data["kind"] = table.value("kind", "");
  data["runs"] = ordered_json::array();
  for (const auto& row : table["rows"]) {
    ordered_json run;
    run["name"] = row.value("name", "");
    run["recipe"] = std::filesystem::path(row.value("recipe", "")).stem().string();
    run["ranks"] = row.value("world_size", 0);
    run["document"] = row.value("document", ordered_json::object());
    run["bars"] = bars_of(row);
    const std::string below = row.value("directory", row.value("name", ""));
    add_curves(run, directory + "/" + below + "/metrics.jsonl");
    data["runs"].push_back(run);
  }
  return data;
}

std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  }
  return out;
}

// Neither "</script>" nor "<!--" in a name means anything to the page.
std::string in_script(const std::string& json) {
  std::string out;
  for (const char c : json) {
    out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return out;
}

std::string html_row(
    const std::vector<std::string>& cells, const char* tag,
    const std::vector<std::string>& titles, const char* row_class = "") {
  std::string row = fmt::format("<tr{}>", row_class);
  for (size_t i = 0; i < cells.size(); ++i) {
    row += fmt::format(
        "<{0}{1}>{2}</{0}>", tag, titles[i] == "strategy" ? " class=\"text\"" : "",
        html_text(cells[i]));
  }
  return row + "</tr>\n";
}

std::string html_rows(const RunTable& table, const ordered_json& json) {
  std::string html;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const bool done = json["rows"][i].value("status", "") == "done";
    html +=
        html_row(table.rows[i], "td", table.titles, done ? "" : " class=\"not-run\"");
  }
  return html;
}

std::string html_notes(const RunTable& table) {
  std::string html;
  for (const auto& note : table.notes) {
    html += "<li>" + html_text(note) + "</li>\n";
  }
  return html;
}

std::string title_of(const ordered_json& table) {
  const std::string kind = table.value("kind", "");
  const auto& rows = table["rows"];
  if (kind == "run") {
    return rows.empty() ? "A run" : rows[0].value("name", "A run");
  }
  return kind == "scaling" ? "Runtime against number of ranks"
                           : fmt::format("{} recipes compared", rows.size());
}

std::string about_machine(const ordered_json& table) {
  const auto machine = table.value("machine", ordered_json::object());
  std::string text = machine.value("cpu", "");
  if (machine.contains("usable_cpus")) {
    text += fmt::format(", {} CPUs usable", machine.value("usable_cpus", 0));
  }
  if (machine.contains("libtorch")) {
    text += ", LibTorch " + machine.value("libtorch", "");
  }
  return text;
}

// The banner keeps its copyright; addresses, which nothing loads, go.
std::string without_addresses(std::string_view code) {
  std::string text(code);
  for (const char* scheme : {"https://", "http://"}) {
    for (size_t at = 0; (at = text.find(scheme, at)) != std::string::npos;) {
      text.erase(at, std::string_view(scheme).size());
    }
  }
  return text;
}

}  // namespace

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
      if (!table.contains("rows") || !table["rows"].is_array()) {
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

void write_report(const std::string& directory, const ordered_json& json) {
  const RunTable table = make_run_table(json, true);
  const std::string data =
      chart_data(directory, json)
          .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  replace_file(
      directory + "/report.html",
      fmt::format(
          fmt::runtime(kReportHtml), fmt::arg("title", html_text(title_of(json))),
          fmt::arg("kind", html_text(json.value("kind", ""))),
          fmt::arg("machine", html_text(about_machine(json))),
          fmt::arg("titles", html_row(table.titles, "th", table.titles)),
          fmt::arg("rows", html_rows(table, json)),
          fmt::arg("notes", html_notes(table)), fmt::arg("version", TANDEM_VERSION),
          fmt::arg("data", in_script(data)), fmt::arg("style", kReportCss),
          fmt::arg("chart_js", without_addresses(kChartJs)),
          fmt::arg("script", kReportJs)));
}

}  // namespace tandem::app
