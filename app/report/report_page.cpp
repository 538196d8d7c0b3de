#include "app/report/report_page.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "app/report/markup.h"
#include "app/report/report_charts.h"
#include "app/report/row_values.h"
#include "app/report/run_table.h"

namespace tandem::app {

// Written by CMake from the files they are named after.
extern const std::string_view kReportHtml;
extern const std::string_view kChartCss;
extern const std::string_view kReportCss;
extern const std::string_view kReportJs;

namespace {

using nlohmann::ordered_json;

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
  const std::string winner = text_in(part_in(json, "winner"), "name");
  std::string html;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const auto& row = json["rows"][i];
    const bool done = text_in(row, "status") == "done";
    const bool wins = done && !winner.empty() && text_in(row, "name") == winner;
    html += html_row(
        table.rows[i], "td", table.titles,
        wins   ? " class=\"wins\""
        : done ? ""
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

std::string html_figure(
    const std::string& id, const std::string& title, const std::string& unit,
    size_t points, size_t of_documents, const std::string& drawing) {
  return fmt::format(
      "<figure id=\"{}\" data-points=\"{}\" data-document-points=\"{}\">"
      "<figcaption>{}{}</figcaption>\n{}</figure>\n",
      id, points, of_documents, html_text(title),
      unit.empty() ? "" : " <span>" + html_text(unit) + "</span>", drawing);
}

// The first chart has names at its lines where the window has room for them.
std::string main_figure(const LineChart& chart) {
  return html_figure(
      chart.id, chart.title, "", count_points(chart, false), count_points(chart, true),
      "<div class=\"wide\">" + draw(chart, kWideChart) +
          "</div>\n<div class=\"narrow\">" + draw(chart, kSmallChart) + "</div>\n");
}

std::string figures(const ReportCharts& charts) {
  std::string html;
  for (const auto& chart : charts.others) {
    html += html_figure(
        chart.id, chart.title, "", count_points(chart, false),
        count_points(chart, true), draw(chart, kSmallChart));
  }
  return html;
}

std::string cost_figures(const ReportCharts& charts) {
  std::string html;
  for (const auto& chart : charts.costs) {
    html += html_figure(
        chart.id, chart.title, chart.unit, chart.rows.size(), count_documents(chart),
        draw(chart));
  }
  return html;
}

// Boxes that show and hide lines, by style.css's rules alone.
std::string legend_of(const ReportCharts& charts) {
  if (charts.legend.size() < 2) {
    return "";
  }
  std::string html = fmt::format(
      "<fieldset class=\"legend\" data-most=\"{}\"><legend>Lines, at most {} at once"
      "</legend>\n",
      kMostLines, kMostLines);
  for (const auto& entry : charts.legend) {
    html += fmt::format(
        "<label><input type=\"checkbox\" id=\"show-{0}\"{1} autocomplete=\"off\">{2}"
        "{3}</label>\n",
        entry.slot, entry.slot < kMostLines ? " checked" : "",
        legend_swatch(entry.slot), html_text(entry.name));
  }
  return html + "</fieldset>\n";
}

std::string legend_rules(const ReportCharts& charts) {
  std::string css;
  for (const auto& [name, slot] : charts.legend) {
    const bool shown = slot < kMostLines;
    css += fmt::format(
        "main:has(#show-{0}:{1}) .run-{0} {{ display: {2}; }}\n", slot,
        shown ? "not(:checked)" : "checked", shown ? "none" : "inline");
  }
  return css;
}

}  // namespace

ReportPage make_page(const ordered_json& table, const Conclusions& conclusions) {
  const ReportCharts charts =
      text_in(table, "kind") == "scaling"
          ? charts_of_scaling(conclusions.runs, conclusions.standing)
          : charts_of_runs(
                conclusions.runs, conclusions.standing,
                number_in(table, "target_accuracy"));
  const RunTable rows = make_run_table(table, true);
  ReportPage page;
  page.html = fmt::format(
      fmt::runtime(kReportHtml), fmt::arg("title", html_text(title_of(table))),
      fmt::arg("kind", html_text(text_in(table, "kind"))),
      fmt::arg("machine", html_text(about_machine(table))),
      fmt::arg("counts", html_text(conclusions.counts)),
      fmt::arg("verdict", html_text(conclusions.verdict)),
      fmt::arg("legend", legend_of(charts)),
      fmt::arg("main_figure", main_figure(charts.main)),
      fmt::arg("caveats", html_list(conclusions.caveats)),
      fmt::arg("titles", html_row(rows.titles, "th", rows.titles)),
      fmt::arg("rows", html_rows(rows, table)),
      fmt::arg("notes", html_list(rows.notes)), fmt::arg("figures", figures(charts)),
      fmt::arg("costs", cost_figures(charts)), fmt::arg("version", TANDEM_VERSION),
      fmt::arg("chart_style", kChartCss), fmt::arg("style", kReportCss),
      fmt::arg("legend_style", legend_rules(charts)), fmt::arg("script", kReportJs));
  auto notes = conclusions.caveats;
  notes.push_back(conclusions.counts + ". " + about_machine(table));
  page.picture = draw_picture(charts.main, conclusions.verdict, notes);
  return page;
}

}  // namespace tandem::app
