#include "app/report/run_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/report/html_text.h"
#include "app/report/report_charts.h"
#include "app/report/row_values.h"
#include "app/report/run_table.h"
#include "app/report/step_timeline.h"
#include "tandem/base/error.h"

namespace tandem::app {

// Texts of report.html, report.css, report.js and Chart.js, which CMake embeds.
extern const std::string_view kReportHtml;
extern const std::string_view kReportCss;
extern const std::string_view kReportJs;
extern const std::string_view kChartJs;

namespace {

using nlohmann::ordered_json;

// Returns JSON for a <script> element. Escapes "<", because "</script" would end the
// element and "<!--" would change its meaning. JSON has "<" only in strings, where it
// can be escaped.
std::string script_json(const ordered_json& json) {
  std::string out;
  for (const char c :
       json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)) {
    out += c == '<' ? "\\u003c" : std::string(1, c);
  }
  return out;
}

std::string html_row(
    const std::vector<std::string>& cells, const char* tag, const char* row_class) {
  std::string row = fmt::format("<tr{}>", row_class);
  for (const auto& cell : cells) {
    row += fmt::format("<{0}>{1}</{0}>", tag, html_text(cell));
  }
  return row + "</tr>\n";
}

std::string html_rows(const RunTable& table, const Conclusions& conclusions) {
  std::string html;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const bool wins = conclusions.winner && conclusions.winner->run == i;
    html += html_row(
        table.rows[i], "td",
        wins                       ? " class=\"wins\""
        : conclusions.runs[i].done ? ""
                                   : " class=\"not-run\"");
  }
  return html;
}

std::string html_list(const std::vector<std::string>& sentences) {
  std::string html;
  for (const auto& sentence : sentences) {
    html += "<li>" + html_text(sentence) + "</li>\n";
  }
  return html;
}

std::string title_of(const ordered_json& table) {
  const std::string kind = text_in(table, "kind");
  const auto& rows = table["rows"];
  if (kind == "run") {
    const std::string name = rows.empty() ? "" : text_in(rows[0], "name");
    return name.empty() ? "A run" : name;
  }
  const auto done =
      static_cast<int>(number_in(part_in(table, "counts"), "done").value_or(0));
  return kind == "scaling"
             ? "Runtime against number of ranks"
             : fmt::format("{} recipe{} compared", done, done == 1 ? "" : "s");
}

std::string about_machine(const ordered_json& table) {
  const auto machine = part_in(table, "machine");
  std::string text = text_in(machine, "cpu");
  if (const auto cpus = number_in(machine, "usable_cpus")) {
    text += fmt::format(", {:.0f} CPUs usable", *cpus);
  }
  if (const auto version = text_in(machine, "libtorch"); !version.empty()) {
    text += ", LibTorch " + version;
  }
  return text;
}

// Returns the reasons why runs are missing, and the meanings of the table's columns.
std::vector<std::string> notes_of(const RunTable& table, const ordered_json& json) {
  const std::pair<const char*, const char*> kMeanings[] = {
      {"test MAE", "mean absolute error on the test samples"},
      {"seconds", "the whole program, with start and tests"},
      {"samples/s", "training only"},
      {"MB/rank", "tensors that a rank passed to its communicators"},
      {"comm ms", "time per step that a rank waited for communication"},
      {"MiB", "peak memory of all processes (PSS)"},
      {"GPU MiB", "peak memory of all GPUs"}};
  std::vector<std::string> meanings;
  for (const auto& [title, meaning] : kMeanings) {
    const auto& titles = table.titles;
    if (std::find(titles.begin(), titles.end(), title) != titles.end()) {
      meanings.push_back(fmt::format("{}: {}", title, meaning));
    }
  }
  auto notes = table.notes;
  notes.push_back(join(meanings, "; ") + ".");
  const auto& rows = json["rows"];
  if (std::any_of(rows.begin(), rows.end(), [](const ordered_json& row) {
        return !tutorial_in(row).empty();
      })) {
    notes.push_back("Figures of a tutorial come from the tutorial's machine.");
  }
  return notes;
}

std::string html_settings(const std::vector<ReportRun>& runs) {
  std::string html;
  for (const auto& run : runs) {
    html += html_row(
        {run.name, run.started.empty() ? "-" : run.started,
         run.settings.empty() ? "-" : join(run.settings)},
        "td", "");
  }
  return html;
}

}  // namespace

std::string make_page(const ordered_json& table, const Conclusions& conclusions) {
  const RunTable rows = make_run_table(table, true);
  return fmt::format(
      fmt::runtime(kReportHtml), fmt::arg("title", html_text(title_of(table))),
      fmt::arg("machine", html_text(about_machine(table))),
      fmt::arg("counts", html_text(conclusions.counts)),
      fmt::arg("verdict", html_text(conclusions.verdict)),
      fmt::arg("caveats", html_list(conclusions.caveats)),
      fmt::arg("titles", html_row(rows.titles, "th", "")),
      fmt::arg("rows", html_rows(rows, conclusions)),
      fmt::arg("notes", html_list(notes_of(rows, table))),
      fmt::arg("timeline", step_timeline(conclusions)),
      fmt::arg("settings", html_settings(conclusions.runs)),
      fmt::arg("version", TANDEM_VERSION),
      fmt::arg("charts", script_json(make_charts(table, conclusions))),
      fmt::arg("style", kReportCss), fmt::arg("script", kReportJs),
      fmt::arg("chart_js", kChartJs));
}

}  // namespace tandem::app
