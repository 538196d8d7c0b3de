#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/report/report_charts.h"
#include "app/report/report_run.h"
#include "app/report/row_values.h"
#include "app/report/run_report.h"
#include "app/report/run_table.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem::app {

namespace {

// Escapes text for the content or an attribute of an HTML element.
inline std::string html_text(const std::string& text) {
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

using nlohmann::ordered_json;

constexpr int kMaxRanks = 8;
// The first steps of a run allocate memory.
constexpr size_t kSkippedSteps = 3;
constexpr const char* kStepName = "ProfilerStep#";

// Sizes in units of the picture.
constexpr double kWidth = 1000;
constexpr double kLabelWidth = 110;
constexpr double kRowHeight = 24;
constexpr double kRankGap = 12;
constexpr double kAxisHeight = 22;
constexpr double kLetterWidth = 6.5;

// A span of a trace; times are in milliseconds.
struct Span {
  std::string name;
  std::string category;
  int row = 0;
  double start = 0;
  double end = 0;
};

// The spans of one step on one rank.
struct RankStep {
  int rank = 0;
  Span step;
  std::vector<Span> spans;
};

std::optional<std::vector<Span>> read_trace(const ReportRun& run, int rank) {
  const std::string path = fmt::format("{}/trace/rank-{}.json", run.directory, rank);
  if (!file_exists(path)) {
    return std::nullopt;
  }
  const auto trace = ordered_json::parse(read_file(path), nullptr, false);
  std::vector<Span> spans;
  for (const auto& event : part_in(trace, "traceEvents")) {
    const auto start = number_in(event, "ts");
    const auto duration = number_in(event, "dur");
    if (start && duration) {
      spans.push_back(
          {text_in(event, "name"), text_in(event, "cat"),
           static_cast<int>(number_in(event, "tid").value_or(0)), *start / 1000,
           (*start + *duration) / 1000});
    }
  }
  return spans;
}

bool is_step(const Span& span) {
  return span.name.rfind(kStepName, 0) == 0;
}

// Returns the name of a step of median duration; "" if there is no step.
std::string median_step(const std::vector<Span>& spans) {
  std::vector<Span> steps;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(steps), &is_step);
  if (steps.size() > kSkippedSteps) {
    steps.erase(steps.begin(), steps.begin() + kSkippedSteps);
  }
  std::sort(steps.begin(), steps.end(), [](const Span& a, const Span& b) {
    return a.end - a.start < b.end - b.start;
  });
  return steps.empty() ? "" : steps[(steps.size() - 1) / 2].name;
}

std::vector<RankStep> steps_of(const ReportRun& run) {
  std::vector<RankStep> ranks;
  std::string name;
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    const auto spans = read_trace(run, rank);
    if (!spans) {
      break;
    }
    name = rank == 0 ? median_step(*spans) : name;
    if (name.empty()) {
      return {};
    }
    RankStep found{rank, {}, {}};
    for (const auto& span : *spans) {
      if (span.name == name) {
        found.step = span;
      } else if (span.start >= found.step.start && span.start < found.step.end) {
        found.spans.push_back(span);
      }
    }
    if (!found.spans.empty()) {
      ranks.push_back(std::move(found));
    }
  }
  return ranks;
}

// Categories of computation that have their own color.
constexpr const char* kKinds[] = {"data", "forward", "backward", "wait", "update"};
constexpr const char* kCommunication = "communication";
constexpr const char* kOther = "other";

// Returns the style of a span: a class in report.css.
const char* class_of(const Span& span) {
  if (span.row > 0) {
    return kCommunication;
  }
  const auto* kind = std::find_if(
      std::begin(kKinds), std::end(kKinds),
      [&](const char* known) { return span.category == known; });
  return kind != std::end(kKinds) ? *kind : kOther;
}

// Returns the key of the colors.
std::string color_key() {
  std::vector<const char*> kinds(std::begin(kKinds), std::end(kKinds));
  kinds.insert(kinds.end(), {kCommunication, kOther});
  std::string key;
  for (const char* kind : kinds) {
    key += fmt::format("<span class=\"{0}\">{0}</span>", kind);
  }
  return "<p class=\"key\">" + key + "</p>\n";
}

// Draws the steps of all ranks on one time axis.
class Picture {
 public:
  explicit Picture(const std::vector<RankStep>& ranks) {
    first_ = ranks.front().step.start;
    last_ = ranks.front().step.end;
    for (const auto& rank : ranks) {
      first_ = std::min(first_, rank.step.start);
      last_ = std::max(last_, rank.step.end);
    }
    for (const auto& rank : ranks) {
      draw(rank);
    }
  }

  std::string svg() const {
    return fmt::format(
        "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Timeline of one "
        "step\">\n{}<text x=\"{:.0f}\" y=\"{:.1f}\">0 ms</text>\n<text class=\"end\" "
        "x=\"{:.0f}\" y=\"{:.1f}\">{:.4g} ms</text>\n</svg>\n",
        kWidth, top_ + kAxisHeight, body_, kLabelWidth, top_ + kAxisHeight - 6, kWidth,
        top_ + kAxisHeight - 6, last_ - first_);
  }

 private:
  void draw(const RankStep& rank) {
    int rows = 1;
    for (const auto& span : rank.spans) {
      rows = std::max(rows, span.row + 1);
      draw(span);
    }
    body_ += fmt::format(
        "<text x=\"0\" y=\"{:.1f}\">rank {}</text>\n", top_ + kRowHeight - 8,
        rank.rank);
    top_ += rows * kRowHeight + kRankGap;
  }

  void draw(const Span& span) {
    const double left = x(span.start);
    const double width = std::max(0.5, x(std::min(span.end, last_)) - left);
    const double top = top_ + span.row * kRowHeight;
    const std::string name = html_text(span.name);
    body_ += fmt::format(
        "<g class=\"{}\"><title>{}, {:.4g} ms</title><rect x=\"{:.2f}\" y=\"{:.1f}\" "
        "width=\"{:.2f}\" height=\"{:.1f}\"/>",
        class_of(span), name, span.end - span.start, left, top, width, kRowHeight - 2);
    if (width > kLetterWidth * static_cast<double>(span.name.size()) + 8) {
      body_ += fmt::format(
          "<text x=\"{:.2f}\" y=\"{:.1f}\">{}</text>", left + 4, top + kRowHeight - 8,
          name);
    }
    body_ += "</g>\n";
  }

  double x(double ms) const {
    return kLabelWidth + (kWidth - kLabelWidth) * (ms - first_) / (last_ - first_);
  }

  double first_ = 0;
  double last_ = 0;
  double top_ = 0;
  std::string body_;
};

std::string section_of(const ReportRun& run) {
  const auto ranks = steps_of(run);
  if (ranks.empty()) {
    return "";
  }
  return fmt::format(
      "<section id=\"step\"><h2>One step</h2>\n<p>Step {} of {}: the first row of a "
      "rank is its computation, the other rows are communication.</p>\n{}<figure>\n{}"
      "</figure></section>\n",
      html_text(ranks.front().step.name.substr(std::string(kStepName).size())),
      html_text(run.name), color_key(), Picture(ranks).svg());
}

// Returns a section of a report with the timeline of one step, as an SVG picture.
// Returns "" if no run has a trace (`--trace`).
//
// The section shows `best`, or the first run with a trace if `best` has no trace. From
// the trace of rank 0, it selects a step of median duration, without the first steps.
// It shows this step on the first ranks.
std::string step_timeline(const std::vector<ReportRun>& runs, const ReportRun* best) {
  std::string section = best != nullptr ? section_of(*best) : "";
  for (auto run = runs.begin(); section.empty() && run != runs.end(); ++run) {
    section = section_of(*run);
  }
  return section;
}

}  // namespace

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

std::string html_rows(const RunTable& table, const ordered_json& json) {
  const std::string winner = text_in(part_in(json, "winner"), "name");
  std::string html;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const auto& row = json["rows"][i];
    const bool done = text_in(row, "status") == "done";
    const bool wins = done && !winner.empty() && text_in(row, "name") == winner;
    html += html_row(
        table.rows[i], "td",
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

std::string html_timeline(const Conclusions& conclusions) {
  const auto& winner = conclusions.winner;
  return step_timeline(
      conclusions.runs, winner ? &conclusions.runs[winner->run] : nullptr);
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
      fmt::arg("rows", html_rows(rows, table)),
      fmt::arg("notes", html_list(notes_of(rows, table))),
      fmt::arg("timeline", html_timeline(conclusions)),
      fmt::arg("settings", html_settings(conclusions.runs)),
      fmt::arg("version", TANDEM_VERSION),
      fmt::arg("charts", script_json(make_charts(table, conclusions))),
      fmt::arg("style", kReportCss), fmt::arg("script", kReportJs),
      fmt::arg("chart_js", kChartJs));
}

}  // namespace tandem::app
