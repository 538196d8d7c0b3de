#include "app/report/step_timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "app/report/html_text.h"
#include "app/report/row_values.h"
#include "tandem/base/files.h"

namespace tandem::app {

namespace {

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

}  // namespace

std::string step_timeline(const Conclusions& conclusions) {
  const auto& runs = conclusions.runs;
  const auto& winner = conclusions.winner;
  std::string section = winner ? section_of(runs[winner->run]) : "";
  for (auto run = runs.begin(); section.empty() && run != runs.end(); ++run) {
    section = section_of(*run);
  }
  return section;
}

}  // namespace tandem::app
